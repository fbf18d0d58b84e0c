package breaker

import (
	"testing"
	"testing/synctest"
	"time"
)

// model is the state machine as the seeds put it, without any of the care that
// the real one takes for speed and concurrency.
type model struct {
	state               State
	failures, successes int
	inFlight            int
	gen                 int
	until               time.Time
}

const (
	modelFailures  = 3
	modelSuccesses = 2
	modelTrials    = 2
	modelOpen      = 10 * time.Second
)

func (m *model) move(s State) {
	m.state, m.failures, m.successes, m.inFlight = s, 0, 0, 0
	m.gen++
	if s == Open {
		m.until = time.Now().Add(modelOpen)
	}
}

func (m *model) tick() {
	if m.state == Open && !time.Now().Before(m.until) {
		m.move(HalfOpen)
	}
}

func (m *model) allow() bool {
	switch m.state {
	case Closed:
		return true
	case HalfOpen:
		if m.inFlight < modelTrials {
			m.inFlight++
			return true
		}
	case Open:
	}
	return false
}

func (m *model) report(gen int, o Outcome) {
	if gen != m.gen {
		return
	}
	if m.state == HalfOpen {
		m.inFlight--
	}
	switch {
	case o == Failure && m.state == HalfOpen:
		m.move(Open)
	case o == Failure:
		if m.failures++; m.failures >= modelFailures {
			m.move(Open)
		}
	case o == Success && m.state == HalfOpen:
		if m.successes++; m.successes >= modelSuccesses {
			m.move(Closed)
		}
	case o == Success:
		m.failures = 0
	}
}

// FuzzBreakerAgreesWithTheModel plays any sequence of calls, results and pauses
// to both, and compares after each step.
func FuzzBreakerAgreesWithTheModel(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 4, 4, 7, 7, 0, 0, 8, 8})
	f.Add([]byte{0, 4, 0, 4, 0, 4, 7, 0, 0, 0, 1, 5, 9, 7, 2, 6})
	f.Add([]byte{0, 0, 0, 0, 1, 1, 1, 3, 3, 7, 0, 1, 0, 1, 2})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 400 {
			steps = steps[:400]
		}
		synctest.Test(t, func(t *testing.T) { play(t, steps) })
	})
}

func play(t *testing.T, steps []byte) {
	b := newBreaker(t, Settings{
		FailureThreshold: modelFailures, SuccessThreshold: modelSuccesses,
		HalfOpenMaxCalls: modelTrials, OpenDuration: modelOpen, TrialTimeout: 24 * time.Hour, // longer than all pauses
	})
	m := &model{}
	type call struct {
		permit Permit
		gen    int
	}
	var out []call
	for i, step := range steps {
		m.tick()
		switch op := step % 10; op {
		case 0, 1, 2: // a call
			p, err := b.Allow()
			if want := m.allow(); (err == nil) != want {
				t.Fatalf("step %d: Allow = %v, the model admits: %v", i, err, want)
			}
			if err == nil {
				out = append(out, call{p, m.gen})
			}
		case 3, 4, 5, 6, 8: // a result, of the oldest or the newest call
			if len(out) == 0 {
				continue
			}
			at := 0
			if op%2 == 0 {
				at = len(out) - 1
			}
			c := out[at]
			out = append(out[:at], out[at+1:]...)
			o := Outcome(int(step/10) % 3)
			switch o {
			case Success:
				c.permit.Success()
			case Failure:
				c.permit.Failure("fuzz")
			case Neutral:
				c.permit.Neutral()
			}
			m.report(c.gen, o)
		default: // time
			time.Sleep(time.Duration(step) * 100 * time.Millisecond)
			synctest.Wait()
		}
		m.tick()
		s := b.Snapshot()
		if s.State != m.state || s.Failures != m.failures || s.Successes != m.successes || s.HalfOpenInFlight != m.inFlight {
			t.Fatalf("step %d: breaker %v/%d/%d/%d, model %v/%d/%d/%d (state/failures/successes/trials)", i,
				s.State, s.Failures, s.Successes, s.HalfOpenInFlight, m.state, m.failures, m.successes, m.inFlight)
		}
		if got := b.State(); got != m.state {
			t.Fatalf("step %d: State() = %v, model %v", i, got, m.state)
		}
	}
}
