#!/usr/bin/env bash
# Builds, runs and tests Caddy with the storage_mux and relay_breaker plugins.
#
#   ./xcaddy-build.sh          build ./caddy
#   ./xcaddy-build.sh run      build it and serve Caddyfile.example
#   ./xcaddy-build.sh test     run every test, unit and integration
#
# With one more plugin, from a folder:
#
#   ./xcaddy-build.sh [run] --with example.com/yours=../yours
#
# It needs Go and git; all else is fetched, at pinned versions, by Go itself.
# The tests use the race detector where there is a C compiler for it.
set -euo pipefail
unset CDPATH

start=$PWD
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
cd -- "$root"
# shellcheck source=.ci/env.sh
. "$root/.ci/env.sh"

build_dir=$root/.build
failed=()
more=() # plugins to build in besides ours, as xcaddy takes them

usage() { sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p;}' "$root/xcaddy-build.sh"; }

# add_plugin WITH adds one more plugin: MODULE or MODULE@VERSION, or MODULE=FOLDER,
# which needs a version for the sake of xcaddy, though nobody has published one.
add_plugin() {
	local module=${1%%=*} folder
	case $1 in
	'' | =* | -*) die "--with needs a module, and may say the folder that it is in: --with example.com/yours=../yours" ;;
	*=*)
		folder=$(cd -- "$start" && cd -- "${1#*=}" 2>/dev/null && pwd) || die "--with $1: there is no folder ${1#*=}"
		[ -f "$folder/go.mod" ] || die "--with $1: there is no go.mod in $folder"
		case $module in *@*) ;; *) module=$module@v0.0.0 ;; esac
		more+=(--with "$module=$folder")
		;;
	*) more+=(--with "$1") ;;
	esac
}

# build_caddy OUTPUT builds Caddy with this checkout as its only plugin, but for
# those of --with. It runs in .build, as xcaddy makes its scratch folder in the
# working folder on macOS.
build_caddy() {
	local output=$1 log
	mkdir -p "$build_dir"
	log=$build_dir/xcaddy.log
	if ! (cd "$build_dir" && go run "$XCADDY" build "$CADDY_VERSION" \
		--with "$MODULE@v0.0.0=.." ${more[@]+"${more[@]}"} --output "$output") >"$log" 2>&1; then
		cat "$log" >&2
		return 1
	fi
}

cmd_build() {
	say "building ./caddy ($CADDY_VERSION, $(go env GOVERSION)); the first time takes some minutes"
	# Pure Go, so that the binary runs on any machine of its kind.
	CGO_ENABLED=0 build_caddy "$root/caddy" || die "Caddy could not be built"
	say "built ./caddy $("$root/caddy" version)"
}

cmd_run() {
	cmd_build
	local data=$build_dir/example
	mkdir -p "$data/directory"
	say "serving Caddyfile.example; its data is in ${data#"$root"/} (end with Ctrl-C)"
	cat <<'TOUR'

In a second terminal, in this folder:

  echo 'hello, mux' > hello.txt
  curl -T hello.txt http://localhost:8080/hello.txt     # upload: goes to every origin
  curl -i http://localhost:8080/hello.txt               # read: X-Served-By: directory
  mv .build/example/directory .build/example/away       # take the first origin away...
  sleep 1                                               # ...which is noticed within a second
  curl -i http://localhost:8080/hello.txt               # read on: X-Served-By: origin
  mv .build/example/away .build/example/directory       # and back, after its cooldown

TOUR
	EXAMPLE_DATA=$data exec "$root/caddy" run --config "$root/Caddyfile.example" --adapter caddyfile
}

# part NAME COMMAND... runs one part of the tests and remembers a failure, so
# that one run shows everything that is wrong.
part() {
	local name=$1
	shift
	say "$name"
	if ! "$@"; then
		failed+=("$name")
		printf 'FAILED: %s\n' "$name"
		return 1
	fi
}

# go_tests FOLDER TIMEOUT ARGS... runs the tests of one module; their events
# are kept, for the counts of the summary.
go_tests() {
	local folder=$1 timeout=$2
	shift 2
	(cd "$folder" && go run "$GOTESTSUM" --format pkgname-and-test-fails --hide-summary skipped \
		--jsonfile "$build_dir/events-${folder##*/}.json" \
		-- -count=1 -timeout "$timeout" -tags "$TAGS,thorough" ${race[@]+"${race[@]}"} "$@" ./...)
}

# check_modules makes sure that the binary under test is the plugin.
check_modules() {
	local modules want
	modules=$("$CADDY_BIN" list-modules) || return 1
	for want in http.handlers.storage_mux storage_mux.backends.file storage_mux.backends.http \
		storage_mux.backends.memory storage_mux.backends.swift storage_mux.backends.rackspace \
		storage_mux.backends.bunny storage_mux.backends.s3 http.reverse_proxy.transport.relay_breaker \
		http.reverse_proxy.selection_policies.relay_breaker; do
		if ! grep -qx -- "$want" <<<"$modules"; then
			printf 'module %s is not in %s\n' "$want" "$CADDY_BIN"
			return 1
		fi
	done
}

# build_s3server builds versitygw, which takes minutes the first time. It is not
# under test itself: no race detector, and no C. Without it, its tests fail, and
# no other.
build_s3server() {
	rm -f "$S3SERVER_BIN"
	(cd "$root/integration/s3server" && CGO_ENABLED=0 go build -o "$S3SERVER_BIN" .)
}

# count ACTION counts the tests, subtests included, that ended this way.
count() {
	cat "$build_dir"/events-*.json 2>/dev/null |
		grep -c "\"Action\":\"$1\",\"Package\":\"[^\"]*\",\"Test\":" || true
}

cmd_test() {
	mkdir -p "$build_dir"
	rm -f "$build_dir"/events-*.json
	race=()
	export CADDY_BIN=$build_dir/caddy-test XCADDY_RACE_DETECTOR=0
	if has_race_detector; then
		race=(-race)
		export XCADDY_RACE_DETECTOR=1 CGO_ENABLED=1
	elif [ -n "${CI:-}" ]; then
		die "no C compiler ($(go env CC)): the race detector, which CI requires, cannot be used"
	else
		printf 'note: no C compiler (%s): the tests run without the race detector\n' "$(go env CC)"
	fi

	part "unit tests ${race[*]-}" go_tests "$root" 15m -shuffle=on || true
	local example
	for example in "$root"/examples/*/; do
		part "example ${example#"$root"/} ${race[*]-}" go_tests "${example%/}" 10m || true
	done
	export S3SERVER_BIN=$build_dir/s3server
	part "build of the S3 server that is tested against" build_s3server || true
	if part "build of the Caddy under test ${race[*]-}" build_caddy "$CADDY_BIN" &&
		part "modules of the Caddy under test" check_modules; then
		part "integration tests ${race[*]-}" go_tests "$root/integration" 20m -parallel 6 || true
	else
		failed+=("integration tests (could not run)")
	fi

	say "summary"
	local name passes failures skips
	passes=$(count pass) failures=$(count fail) skips=$(count skip)
	for name in ${failed[@]+"${failed[@]}"}; do printf 'failed: %s\n' "$name"; done
	if ((passes == 0)); then failed+=("no test ran") && printf 'no test ran\n'; fi
	printf '%d passed, %d failed, %d skipped\n' "$passes" "$failures" "$skips"
	((${#failed[@]} == 0 && failures == 0))
}

command=build
case "${1-}" in
'' | --with) ;;
build | run | test)
	command=$1
	shift
	;;
-h | --help | help)
	usage
	exit
	;;
*)
	usage >&2
	die "unknown argument '$1'"
	;;
esac
while (($#)); do
	[ "$command" != test ] || die "test takes no more arguments, got '$1'"
	if [ "$1" != --with ]; then
		usage >&2
		die "unknown argument '$1'"
	fi
	add_plugin "${2-}"
	shift 2
done
pick_toolchain
set_build_flags
"cmd_$command"
