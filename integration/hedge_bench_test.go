package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// BenchmarkHedge measures what one replica of three costs that is 200 ms slow on a tenth of its requests, without hedging
// and with it: the 50th and 99th percentile of the answers, and the requests to origins beyond one each.
func BenchmarkHedge(b *testing.B) {
	for _, slow := range []bool{false, true} {
		for _, hedge := range []string{"off", "auto", "20ms"} {
			b.Run(fmt.Sprintf("slow=%t/hedge=%s", slow, hedge), func(b *testing.B) { benchmarkHedge(b, slow, hedge) })
		}
	}
}

func benchmarkHedge(b *testing.B, slow bool, hedge string) {
	const clients, warmUp = 4, 2000
	var origins []*origin.Origin
	for i := range 3 {
		o := origin.New(b)
		o.Put("/x", origin.Object{Body: someBytes(10_000)})
		if slow && i == 0 {
			o.Script(origin.Faults{Delay: 200 * time.Millisecond, Only: func(*http.Request) bool { return rand.IntN(10) == 0 }})
		}
		origins = append(origins, o)
	}
	c := rig.Start(b, fmt.Sprintf(`
		storage_mux round_robin {
			hedge %s
			backend f1 http {$F1}
			backend f2 http {$F2}
			backend f3 http {$F3}
		}`, hedge), rig.Env("F1", origins[0].URL()), rig.Env("F2", origins[1].URL()), rig.Env("F3", origins[2].URL()))
	run := func(n int) []time.Duration {
		took := make([]time.Duration, n)
		var wg sync.WaitGroup
		for worker := range clients {
			wg.Go(func() {
				for i := worker; i < n; i += clients {
					begin := time.Now()
					if r, err := c.Try(rig.Request{Path: "/x"}); err != nil || r.Status != http.StatusOK {
						b.Errorf("GET = %d, %v", r.Status, err)
					}
					took[i] = time.Since(begin)
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		return took
	}
	run(warmUp)
	for _, o := range origins {
		o.Forget()
	}
	b.ResetTimer()
	took := run(b.N)
	b.StopTimer()
	hits := 0
	for _, o := range origins {
		hits += o.Hits()
	}
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(100*float64(hits-b.N)/float64(b.N), "%extra")
}
