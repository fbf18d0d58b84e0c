package integration_test

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

var (
	stormDuration = flag.Duration("storm.duration", 0, "how long the storm blows (also STORM_DURATION). Default: 30s, with -short 5s")
	stormSeed     = flag.Uint64("storm.seed", 0, "what makes a storm: the same requests and faults, if not the same moments. Default: by the clock")
)

const stormClients = 40

// stormSites are all modes and a nested tree, over the same origins: f1 and f2 are in the storm, f3 is well. No weather lasts as long
// as their timeout, which is for a machine so busy that even f3 takes its time.
const stormSites = `
(backends) {
	timeout 15s
	backend f1 http {$F1}
	backend f2 http {$F2}
	backend f3 http {$F3}
}
http://:{$PORT1} {
	storage_mux failover {
		name in_failover
		import backends
	}
}
http://:{$PORT2} {
	storage_mux round_robin {
		name in_round_robin
		hedge auto
		import backends
	}
}
http://:{$PORT3} {
	storage_mux weighted {
		name in_weighted
		hedge 50ms 20%
		timeout 15s
			backend f1 http {$F1} {
			weight 2
		}
		backend f2 http {$F2} {
			weight 1
		}
		backend f3 http {$F3} {
			weight 1
		}
	}
}
http://:{$PORT4} {
	storage_mux sticky_by_key {
		name in_sticky
		import backends
	}
}
http://:{$PORT5} {
	storage_mux shield {
		name in_shield
		retry 1 5ms
		import backends
	}
}
http://:{$PORT6} {
	storage_mux mirror {
		name in_mirror
		import backends
	}
}
http://:{$PORT7} {
	storage_mux failover {
		name in_nested
		timeout 15s
			backend near mux round_robin {
			timeout 15s
					backend f1 http {$F1}
			backend f2 http {$F2}
		}
		backend far mux mirror {
			timeout 15s
					backend f2 http {$F2}
			backend f3 http {$F3}
		}
	}
}
`

var stormTrees = []string{"in_failover", "in_round_robin", "in_weighted", "in_sticky", "in_shield", "in_mirror", "in_nested"}

// stormObject is one version of an object. No eight bytes of it are those of another place, key or version.
type stormObject struct {
	key, etag string
	body      []byte
}

func newStormObject(key string, size, version int) stormObject {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, key, version)
	words := rand.New(rand.NewPCG(h.Sum64(), uint64(version)))
	body := make([]byte, 0, size+8)
	for len(body) < size {
		body = binary.LittleEndian.AppendUint64(body, words.Uint64())
	}
	return stormObject{key: key, body: body[:size], etag: fmt.Sprintf(`"%x-%d"`, h.Sum64(), version)}
}

// storm is one storm under way.
type storm struct {
	t       *testing.T
	seed    uint64
	clients int
	http1   bool // alone
	c       *rig.Caddy
	origins []*origin.Origin
	keys    []string
	objects map[string][]stormObject // by key, the version that f3 has first
	over    chan struct{}
	wg      sync.WaitGroup

	mu       sync.Mutex
	requests int
	broken   map[string]int // answers that did not come whole, by tree and how
	wrong    []string
	truth    [2]time.Time // since when each origin in the storm tells no lies; zero: it does tell some
}

// The storm: whatever befalls two of three origins, no client ever gets a wrong byte, and next to none an answer that is
// not whole.
func TestTheStorm(t *testing.T) {
	t.Parallel()
	span := stormSpan(t)
	s := newStorm(t, stormClients)
	t.Logf("-storm.seed %d -storm.duration %v", s.seed, span)
	s.c = rig.Start(t, stormSites, s.options()...)
	s.blows()
	<-time.After(span)
	s.calm()
	s.judge(1)
}

// newStorm makes the origins, and what lies in them.
func newStorm(t *testing.T, clients int) *storm {
	t.Helper()
	s := &storm{t: t, seed: *stormSeed, clients: clients, objects: make(map[string][]stormObject), broken: make(map[string]int)}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	for range 3 {
		s.origins = append(s.origins, origin.New(t))
	}
	for i, size := range []int{0, 1, 1000, 20_000, 32 << 10, 32<<10 + 1, 100_000, 300_000, 1 << 20} {
		key := fmt.Sprintf("/o%d", i)
		s.keys = append(s.keys, key)
		s.objects[key] = []stormObject{newStormObject(key, size, 1), newStormObject(key, max(0, size-size/10), 2)}
		for _, o := range s.origins {
			s.store(o, key, 0)
		}
	}
	return s
}

// options are those of the Caddy that is asked.
func (s *storm) options() []rig.Option {
	return []rig.Option{
		rig.Global("servers {\n\tprotocols h1 h2c\n}"),
		rig.Env("F1", s.origins[0].URL()), rig.Env("F2", s.origins[1].URL()), rig.Env("F3", s.origins[2].URL()),
	}
}

// blows begins to do so, and to ask, until calm.
func (s *storm) blows() {
	s.over = make(chan struct{})
	for i := range s.truth {
		s.truth[i] = time.Now()
		s.wg.Go(func() { s.blow(i, rand.New(rand.NewPCG(s.seed, uint64(i)))) })
	}
	for i := range s.clients {
		s.wg.Go(func() { s.ask(i%2 == 1 && !s.http1, rand.New(rand.NewPCG(s.seed, uint64(100+i)))) })
	}
}

// calm ends it.
func (s *storm) calm() {
	close(s.over)
	s.wg.Wait()
}

func stormSpan(t *testing.T) time.Duration {
	t.Helper()
	if *stormDuration > 0 {
		return *stormDuration
	}
	if word := os.Getenv("STORM_DURATION"); word != "" {
		span, err := time.ParseDuration(word)
		if err != nil {
			t.Fatalf("STORM_DURATION: %v", err)
		}
		return span
	}
	if testing.Short() {
		return 5 * time.Second
	}
	return 30 * time.Second
}

func (s *storm) store(o *origin.Origin, key string, version int) {
	obj := s.objects[key][version]
	o.Put(key, origin.Object{Body: obj.body, ETag: obj.etag, Header: http.Header{"Content-Type": {stormType}}})
}

// lies are what nothing can make good once the head of the answer has gone out: a length that is not the object's, or
// none. Such a download must be broken off; it is told by its head, and does not count towards the limit.
var lies = []func(s *storm, o *origin.Origin, r *rand.Rand){
	func(_ *storm, o *origin.Origin, r *rand.Rand) { o.Script(origin.Faults{ShortBy: 1 + r.Int64N(1000)}) },
	func(_ *storm, o *origin.Origin, r *rand.Rand) {
		o.Script(origin.Faults{Chunked: true, CutAfter: 1 + r.Int64N(300_000)})
	},
}

// weather is what else may befall an origin.
var weather = []func(s *storm, o *origin.Origin, r *rand.Rand){
	func(_ *storm, o *origin.Origin, r *rand.Rand) {
		o.Script(origin.Faults{ResetAfter: 1 + r.Int64N(300_000)})
	},
	func(_ *storm, o *origin.Origin, r *rand.Rand) {
		o.Script(origin.Faults{CutAfter: 1 + r.Int64N(300_000)})
	},
	func(_ *storm, o *origin.Origin, r *rand.Rand) {
		o.Script(origin.Faults{StallAfter: 1 + r.Int64N(300_000)})
	},
	func(_ *storm, o *origin.Origin, r *rand.Rand) {
		o.Script(origin.Faults{Drip: 1000 + r.Int64N(20_000), DripEvery: 5 * time.Millisecond})
	},
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Script(origin.Faults{Status: 500, Body: "oh"}) },
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Script(origin.Faults{Drop: true}) },
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Script(origin.Faults{Hang: true}) },
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Script(origin.Faults{IgnoreRange: true}) },
	func(_ *storm, o *origin.Origin, r *rand.Rand) { o.Script(origin.Faults{Shift: 1 + r.Int64N(1000)}) },
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Refuse() },
	func(_ *storm, o *origin.Origin, _ *rand.Rand) { o.Blackhole() },
	func(s *storm, o *origin.Origin, _ *rand.Rand) {
		for _, key := range s.keys {
			s.store(o, key, 1)
		}
	},
}

// blow makes an origin misbehave, in one way after the other, until the storm is over.
func (s *storm) blow(i int, r *rand.Rand) {
	o := s.origins[i]
	for {
		kinds := weather
		if r.IntN(10) == 0 {
			kinds = lies
			s.since(i, time.Time{})
		}
		kinds[r.IntN(len(kinds))](s, o, r)
		if !s.pause(time.Duration(50+r.IntN(700)) * time.Millisecond) {
			break
		}
		o.Heal()
		s.since(i, time.Now())
		for _, key := range s.keys {
			s.store(o, key, 0)
		}
		o.Forget()
		s.origins[2].Forget()
		if !s.pause(time.Duration(r.IntN(300)) * time.Millisecond) {
			break
		}
	}
	o.Heal()
}

// since notes from when on an origin tells no lies.
func (s *storm) since(i int, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.truth[i]; kept.IsZero() || t.IsZero() {
		s.truth[i] = t
	}
}

// liedTo tells whether an origin has lied since then.
func (s *storm) liedTo(then time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.truth[:], func(t time.Time) bool { return t.IsZero() || t.After(then) })
}

func (s *storm) pause(d time.Duration) bool {
	select {
	case <-s.over:
		return false
	case <-time.After(d):
		return true
	}
}

// ask asks for one thing after the other until the storm is over.
func (s *storm) ask(h2 bool, r *rand.Rand) {
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4}
	if h2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: rig.AnswerWithin}
	for {
		select {
		case <-s.over:
			return
		default:
		}
		site := r.IntN(len(stormTrees))
		url := fmt.Sprintf("http://127.0.0.1:%s", s.c.Word(fmt.Sprint("PORT", site+1)))
		q := s.question(r)
		how, err := s.exchange(client, url, q)
		s.mu.Lock()
		s.requests++
		if how != "" {
			s.broken[stormTrees[site]+": "+how]++
		}
		if err != nil {
			s.wrong = append(s.wrong, fmt.Sprintf("%s, HTTP/2 %t, %+v: %v", stormTrees[site], h2, q, err))
		}
		s.mu.Unlock()
	}
}

// judge is what came of the storm. No more than perMille of the requests may lack their full answer.
func (s *storm) judge(perMille int) {
	t, failed := s.t, 0
	lied := 0
	for _, how := range slices.Sorted(maps.Keys(s.broken)) {
		t.Logf("%s: %d", how, s.broken[how])
		if strings.HasSuffix(how, stormLied) || strings.HasSuffix(how, stormGone) {
			lied += s.broken[how]
		} else {
			failed += s.broken[how]
		}
	}
	for _, tree := range stormTrees {
		stats := s.stats(tree)
		t.Logf("%s: %d failovers, %d resumes", tree, stats.Failovers, stats.Resumes)
		for _, b := range stats.Backends {
			b.check(t, tree)
		}
	}
	why := make(map[string]int)
	for _, e := range s.c.Log.Entries(func(e rig.Entry) bool { return e.Str("msg") == "aborting with incomplete response" }) {
		why[fmt.Sprintf("%s: %.130s", e.Str("backend"), stormPorts.ReplaceAllString(e.Str("error"), "-"))]++
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		t.Logf("aborted %d times: %s", why[reason], reason)
	}
	t.Logf("%d requests, %d without their full answer, %d more that no copy could fulfil, %d wrong", s.requests, failed, lied, len(s.wrong))
	for _, wrong := range s.wrong[:min(len(s.wrong), 20)] {
		t.Error(wrong)
	}
	if s.requests < 100 {
		t.Errorf("only %d requests", s.requests)
	}
	if failed*1000 > perMille*max(s.requests, 2000) { // fewer show no rate
		t.Errorf("%d of %d requests did not get their full answer, which is more than %d in 1000", failed, s.requests, perMille)
	}
}

var stormPorts = regexp.MustCompile(`[0-9.:]+->[0-9.:]+|[0-9]+ of [0-9]+`)

// stormStats are those of a tree.
type stormStats struct {
	Resumes   int `json:"total_resumes"`
	Failovers int `json:"total_failovers"`
	Backends  []stormBackend
}

func (s *storm) stats(tree string) (stats stormStats) {
	s.t.Helper()
	status, body := s.c.Admin(http.MethodGet, "/storage_mux/"+tree, "")
	if err := json.Unmarshal([]byte(body), &stats); err != nil || status != http.StatusOK {
		s.t.Errorf("stats of %s: %d, %v", tree, status, err)
	}
	return stats
}

// stormBackend is a backend in the stats.
type stormBackend struct {
	Name     string
	Errors   int
	InFlight int `json:"in_flight_count"`
	Reason   string
	Mux      *struct{ Backends []stormBackend }
}

// asked is how many calls are under way.
func (b stormBackend) asked() int {
	n := b.InFlight
	if b.Mux != nil {
		for _, inner := range b.Mux.Backends {
			n += inner.asked()
		}
	}
	return n
}

// check makes sure that the one which was well is not blamed for anything.
func (b stormBackend) check(t *testing.T, tree string) {
	t.Helper()
	if b.Name == "f3" && b.Errors > 0 {
		t.Errorf("%s: f3, which was well, has %d errors: %s", tree, b.Errors, b.Reason)
	}
	if b.Mux != nil {
		for _, inner := range b.Mux.Backends {
			inner.check(t, tree)
		}
	}
}
