package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// progressInterval is how often a repair says how far it is.
const progressInterval = time.Second

// repairLine is a line of the answer to a repair: a step, with an error one that failed; an error of a backend as a whole, or
// of everything; how far it is; or at its end, what it came to.
type repairLine struct {
	*muxcore.RepairStep
	Failed   string         `json:"failed_backend,omitempty"`
	Code     muxcore.Code   `json:"code,omitempty"`
	Error    string         `json:"error,omitempty"`
	Progress *progress      `json:"progress,omitempty"`
	Summary  *repairSummary `json:"summary,omitempty"`
}

type progress struct {
	Keys int64 `json:"keys"` // compared so far
}

type repairSummary struct {
	Keys    int64 `json:"keys"` // compared
	Copied  int   `json:"copied"`
	Deleted int   `json:"deleted"`
	Kept    int   `json:"kept"` // differ, and were left so: read-only, or extra
	Failed  int   `json:"failed"`
	Bytes   int64 `json:"bytes"`
	DryRun  bool  `json:"dry_run,omitempty"` // nothing of this was done
}

// repairReport writes the answer to a repair, line by line.
type repairReport struct {
	keys   atomic.Int64
	ignore func(error) bool // of what is not told; nil: all is

	mu  sync.Mutex // guards what follows
	out func(*repairLine) error
	sum repairSummary
	err error // of writing
}

// repair brings the backends of a tree back together, and tells of each step as it is done. A repair that is refused is a 409, and does
// nothing. It ends when the client goes away; what is under way then is done whole or not at all.
func (a *adminAPI) repair(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	opts, err := repairOptions(r.URL.Query())
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	t := activeTree(name) //nolint:contextcheck // a tree outlives requests
	if t == nil {
		return noTree(name)
	}
	defer t.release()
	// The admin server gives up reading after ten seconds, and then takes the client for gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	report := &repairReport{out: jsonLines(w), sum: repairSummary{DryRun: opts.DryRun}}
	opts.OnKey = func(string) { report.keys.Add(1) }
	return report.run(r.Context(), t.store, opts)
}

// run repairs, and tells of it while somebody listens.
func (r *repairReport) run(ctx context.Context, m *muxcore.Mux, opts muxcore.RepairOptions) error {
	stop := r.tick()
	defer stop()
	for step, err := range m.Repair(ctx, opts) {
		if status := repairStatus(&step, err); status != 0 && r.keys.Load() == 0 {
			return apiError(status, err)
		}
		if r.ignore != nil && r.ignore(err) {
			continue
		}
		if ctx.Err() != nil || !r.step(step, err) {
			return nil
		}
	}
	stop()
	r.end()
	return nil
}

// repairStatus is the status for a repair that did not begin; 0 for one that did.
func repairStatus(step *muxcore.RepairStep, err error) int {
	switch {
	case err == nil || step.Key != "":
		return 0
	case errors.Is(err, muxcore.ErrRepairRefused):
		return http.StatusConflict
	}
	switch muxcore.CodeOf(err) {
	case muxcore.CodeBackendNotFound:
		return http.StatusNotFound
	case muxcore.CodeInvalidKey:
		return http.StatusBadRequest
	default:
		return 0
	}
}

// repairOptions reads the query.
func repairOptions(query url.Values) (muxcore.RepairOptions, error) {
	var opts muxcore.RepairOptions
	flags := map[string]*bool{"delete": &opts.Delete, "force": &opts.Force, "deep": &opts.Deep, "dry_run": &opts.DryRun}
	words := map[string]*string{"truth": &opts.Truth, "prefix": &opts.Prefix}
	for name, values := range query {
		value := values[len(values)-1]
		switch flag, word := flags[name], words[name]; {
		case len(values) > 1:
			return opts, fmt.Errorf("%s: given twice", name)
		case flag != nil:
			var err error
			if *flag, err = strconv.ParseBool(value); err != nil {
				return opts, fmt.Errorf("%s: must be 1 or 0, got %q", name, value)
			}
		case word != nil && value == "":
			return opts, fmt.Errorf("%s: must not be empty", name)
		case word != nil:
			*word = value
		default:
			known := append(slices.Collect(maps.Keys(flags)), slices.Collect(maps.Keys(words))...)
			slices.Sort(known)
			return opts, fmt.Errorf("unknown parameter %q, known are %s", name, strings.Join(known, ", "))
		}
	}
	if opts.Force && !opts.Delete {
		return opts, errors.New("force: says nothing without delete")
	}
	return opts, nil
}

// tick begins to tell how far the repair is; stop ends that.
func (r *repairReport) tick() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for told := int64(0); ; {
			select {
			case <-quit:
				return
			case <-ticker.C:
				if n := r.keys.Load(); n > told { // not before it is known that the repair will not be refused
					told = n
					r.line(repairLine{Progress: &progress{n}})
				}
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-done
	})
}

// step tells of a step, and whether anybody listens.
func (r *repairReport) step(step muxcore.RepairStep, err error) bool {
	line := repairLine{}
	if step.Key != "" {
		line.RepairStep = &step
	}
	if err != nil {
		line.Code, line.Error = muxcore.CodeOf(err), err.Error()
		if step.Key == "" {
			line.Failed = backendOf(err)
		}
	}
	r.count(&step, err)
	return r.line(line)
}

func (r *repairReport) count(step *muxcore.RepairStep, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.sum.Failed++
	case step.Action == muxcore.RepairCopy:
		r.sum.Copied++
		r.sum.Bytes += step.Size
	case step.Action == muxcore.RepairDelete:
		r.sum.Deleted++
	default:
		r.sum.Kept++
	}
}

func (r *repairReport) end() {
	r.mu.Lock()
	sum := r.sum
	r.mu.Unlock()
	sum.Keys = r.keys.Load()
	r.line(repairLine{Summary: &sum})
}

// line writes a line at once.
func (r *repairReport) line(line repairLine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return false
	}
	r.err = r.out(&line)
	return r.err == nil
}

// jsonLines writes each line to a response at once.
func jsonLines(w http.ResponseWriter) func(*repairLine) error {
	return func(line *repairLine) error {
		w.Header().Set("Content-Type", "application/x-ndjson")
		if err := json.NewEncoder(w).Encode(line); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
}
