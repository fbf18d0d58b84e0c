package breaker

import "testing"

func BenchmarkAllowAndSuccessWhileClosed(b *testing.B) {
	br := newBreaker(b, Settings{})
	b.ReportAllocs()
	for b.Loop() {
		p, err := br.Allow()
		if err == nil {
			p.Success()
		}
	}
}

func BenchmarkAllowAndSuccessWhileClosedParallel(b *testing.B) {
	br := newBreaker(b, Settings{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := br.Allow()
			if err == nil {
				p.Success()
			}
		}
	})
}

func BenchmarkAllowWhileOpen(b *testing.B) {
	br := newBreaker(b, Settings{FailureThreshold: 1})
	fail(b, br)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := br.Allow(); err == nil {
			b.Fatal("admitted while open")
		}
	}
}

func BenchmarkAllowWhileOpenParallel(b *testing.B) {
	br := newBreaker(b, Settings{FailureThreshold: 1})
	fail(b, br)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := br.Allow(); err == nil {
				b.Fatal("admitted while open")
			}
		}
	})
}

func BenchmarkAllowAndSuccessByRatio(b *testing.B) {
	br := newBreaker(b, Settings{FailureRatio: 0.5})
	b.ReportAllocs()
	for b.Loop() {
		p, err := br.Allow()
		if err == nil {
			p.Success()
		}
	}
}

func TestNothingIsAllocatedOnTheFastPaths(t *testing.T) {
	closed, open := newBreaker(t, Settings{}), newBreaker(t, Settings{FailureThreshold: 1})
	fail(t, open)
	if n := testing.AllocsPerRun(100, func() {
		p, _ := closed.Allow()
		p.Success()
	}); n != 0 {
		t.Errorf("closed: %v allocations a call, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = open.Allow() }); n != 0 {
		t.Errorf("open: %v allocations a call, want 0", n)
	}
}
