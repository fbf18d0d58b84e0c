# shellcheck shell=bash
# The build environment that xcaddy-build.sh and .ci/run share. It is sourced,
# never run: both must compile with the very same flags, so that every build
# after the first finds the packages of the one before in Go's build cache.

GO_WANTED=go1.27.3 # the toolchain line of go.mod
GO_OLDEST=1.26     # the go line of go.mod
CADDY_VERSION=v2.11.9
XCADDY=github.com/caddyserver/xcaddy/cmd/xcaddy@v0.4.5
GOTESTSUM=gotest.tools/gotestsum@v1.13.0
MODULE=github.com/suaveplan/caddy-storage-mux
TAGS=nobadger,nomysql,nopgx # xcaddy's own default: no database drivers that nothing here uses

# say prints a headline that stands out between the output of the tools.
say() { printf '\n==> %s\n' "$*"; }

# die ends the script with one line that says why.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# pick_toolchain selects the Go toolchain: the one the project is developed
# with when it can be had, else the installed one if it is not too old.
pick_toolchain() {
	command -v go >/dev/null 2>&1 ||
		die "Go was not found on PATH; install Go $GO_OLDEST or newer from https://go.dev/dl"
	if (cd / && GOTOOLCHAIN=$GO_WANTED go version) >/dev/null 2>&1; then
		export GOTOOLCHAIN=$GO_WANTED
		return
	fi
	local have
	have=$(cd / && GOTOOLCHAIN=local go env GOVERSION) || die "'go env' does not work"
	have=${have#go}
	if ! version_at_least "$have" "$GO_OLDEST"; then
		die "Go $GO_OLDEST or newer is needed; this is Go $have, and $GO_WANTED could not be downloaded"
	fi
	export GOTOOLCHAIN=local
	printf 'note: %s could not be had, going on with Go %s\n' "$GO_WANTED" "$have"
}

# version_at_least HAVE WANT compares the first two numbers of two versions.
version_at_least() {
	local hmajor hminor wmajor wminor
	IFS=. read -r hmajor hminor _ <<<"$1"
	IFS=. read -r wmajor wminor _ <<<"$2"
	hminor=${hminor%%[!0-9]*}
	((hmajor > wmajor || (hmajor == wmajor && ${hminor:-0} >= wminor)))
}

# set_build_flags exports the one set of flags. -tags on a command line takes
# the place of those in it: name $TAGS there as well.
set_build_flags() {
	export GOFLAGS="-trimpath -buildvcs=false -tags=$TAGS"
	export GOWORK=off
	unset XCADDY_GO_BUILD_FLAGS XCADDY_GO_MOD_FLAGS XCADDY_DEBUG XCADDY_SKIP_BUILD XCADDY_SKIP_CLEANUP XCADDY_SETCAP
	unset GOOS GOARCH
}

# has_race_detector tells whether programs can be built with -race here: on
# most systems that takes a C compiler.
has_race_detector() {
	command -v "$(go env CC)" >/dev/null 2>&1 || [ "$(go env GOOS)" = darwin ]
}
