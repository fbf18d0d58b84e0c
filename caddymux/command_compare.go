package caddymux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func verifyFlags(cmd *cobra.Command) {
	cmd.Flags().String("prefix", "", "Only keys that begin with this")
	cmd.Flags().String("truth", "", "The backend whose word counts; default: that of the mode")
	cmd.Flags().Bool("deep", false, "Read every byte of every copy: compare them with each other, and with what is recorded of them")
}

// verifySummary is the last line of a comparison.
type verifySummary struct {
	Keys   int64 `json:"keys"`
	Differ int64 `json:"differ"`
	Failed int   `json:"failed"` // backends whose part is missing, or that of some keys

	// LeftOut are backends that live in the process of the Caddy that runs, where a command does not see them.
	LeftOut []string `json:"left_out,omitempty"`
}

// verifyLine is a line of it.
type verifyLine struct {
	*muxcore.Difference
	Failed  string         `json:"failed_backend,omitempty"`
	Code    muxcore.Code   `json:"code,omitempty"`
	Error   string         `json:"error,omitempty"`
	Summary *verifySummary `json:"summary,omitempty"`
}

func runVerify(x *call) error {
	var sum verifySummary
	bar := x.meter("verify", -1, nil)
	defer bar.end()
	opts := muxcore.VerifyOptions{Prefix: x.flag("prefix"), Truth: x.flag("truth"), Deep: x.isSet("deep")}
	opts.OnKey = func(string) {
		sum.Keys++
		bar.count(1, "keys")
	}
	for difference, err := range x.tree.store.Verify(x.ctx, opts) {
		if code := muxcore.CodeOf(err); code == muxcore.CodeBackendNotFound || code == muxcore.CodeInvalidKey {
			return err // nothing was compared
		}
		bar.clear()
		if err := x.difference(&difference, err, &sum); err != nil {
			return err
		}
	}
	bar.end()
	if x.ctx.Err() != nil {
		return errInterrupted
	}
	if err := x.verified(&sum); err != nil {
		return err
	}
	switch {
	case sum.Failed > 0:
		return fmt.Errorf("the comparison is incomplete: %d failures", sum.Failed)
	case sum.Differ > 0:
		return fmt.Errorf("%d of %d keys differ", sum.Differ, sum.Keys)
	}
	return nil
}

// difference tells of a key, or of what could not be compared.
func (x *call) difference(d *muxcore.Difference, failure error, sum *verifySummary) error {
	if x.trees.leftOut(failure) {
		sum.LeftOut = append(sum.LeftOut, backendOf(failure))
		return nil
	}
	if failure != nil {
		sum.Failed++
		line := verifyLine{Code: muxcore.CodeOf(failure), Error: failure.Error()}
		line.Failed = backendOf(failure)
		if x.json {
			return x.line(&line)
		}
		return x.printf("could not compare: %s", line.Error)
	}
	sum.Differ++
	if x.json {
		return x.line(&verifyLine{Difference: d})
	}
	words := make([]string, len(d.Copies))
	for i, one := range d.Copies {
		words[i] = one.Backend + " " + string(one.State)
	}
	return x.printf("%s: %s", d.Key, strings.Join(words, ", "))
}

func (x *call) verified(sum *verifySummary) error {
	if x.json {
		return x.line(&verifyLine{Summary: sum})
	}
	note := ""
	if len(sum.LeftOut) > 0 {
		note = "; left out, as they live in the Caddy that runs: " + strings.Join(sum.LeftOut, ", ")
	}
	return x.printf("%d keys compared, %d differ%s", sum.Keys, sum.Differ, note)
}

// backendOf is the backend that an error is about.
func backendOf(err error) string {
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		return e.Backend
	}
	return ""
}

func repairFlags(cmd *cobra.Command) {
	verifyFlags(cmd)
	cmd.Flags().Bool("delete", false, "Also remove what the truth does not hold")
	cmd.Flags().Bool("force", false, "With --delete: even if the truth is empty, or more than a tenth of the keys would go")
	cmd.Flags().Bool("dry-run", false, "Only say what would be done")
}

// repairQuery is what the flags say, as the admin API takes it.
func (x *call) repairQuery() url.Values {
	query := make(url.Values)
	for _, word := range []string{"prefix", "truth"} {
		if value := x.flag(word); value != "" {
			query.Set(word, value)
		}
	}
	for _, word := range []string{"deep", "delete", "force", "dry-run"} {
		if x.isSet(word) {
			query.Set(strings.ReplaceAll(word, "-", "_"), "1")
		}
	}
	return query
}

func runRepair(x *call) error {
	query := x.repairQuery()
	opts, err := repairOptions(query)
	if err != nil {
		return err
	}
	if err := x.trees.unsure; err != nil {
		return fmt.Errorf("whether a Caddy runs with this tree, which would have to do it, is not known: %w", err)
	}
	x.hint(x.trees.note)
	p := &repairPrinter{call: x, bar: x.meter("repair", -1, nil)}
	defer p.bar.end()
	if x.trees.running {
		if err := p.byCaddy(query); err != nil {
			return err
		}
		return p.verdict()
	}
	report := &repairReport{out: p.print, sum: repairSummary{DryRun: opts.DryRun}, ignore: x.trees.leftOut}
	opts.OnKey = func(string) {
		report.keys.Add(1)
		p.bar.count(1, "keys")
	}
	if err := report.run(x.ctx, x.tree.store, opts); err != nil {
		if refused, ok := errors.AsType[caddy.APIError](err); ok {
			return refused.Err
		}
		return err
	}
	if x.ctx.Err() != nil {
		return errInterrupted
	}
	return p.verdict()
}

// repairPrinter writes the lines of a repair.
type repairPrinter struct {
	*call
	bar    *meter
	failed int
	ended  bool
}

// byCaddy has the Caddy that runs do it.
func (p *repairPrinter) byCaddy(query url.Values) error {
	answer, err := p.trees.ask(p.ctx, 0, http.MethodPost, adminPath+"/"+url.PathEscape(p.tree.name)+"/repair?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read; the end of ctx ends the repair
	lines := json.NewDecoder(answer.Body)
	for {
		var line repairLine
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF) && p.ended:
			return nil
		case err != nil:
			return fmt.Errorf("the repair by the Caddy that runs broke off: %w", err)
		}
		if err := p.print(&line); err != nil {
			return err
		}
	}
}

// print writes one line.
func (p *repairPrinter) print(line *repairLine) error {
	p.ended = line.Summary != nil
	if line.Error != "" {
		p.failed++
	}
	if line.Progress != nil {
		p.bar.at(line.Progress.Keys, "keys")
		if !p.json {
			return nil
		}
	}
	p.bar.clear()
	switch {
	case p.json:
		return p.line(line)
	case line.Summary != nil:
		return p.summary(line.Summary)
	case line.RepairStep == nil:
		return p.printf("failed: %s", line.Error)
	case line.Error != "":
		return p.printf("%s: %s: %s failed: %s", line.Key, line.Backend, string(line.Action), line.Error)
	case line.From != "":
		return p.printf("%s: %s: %s from %s (was %s)", line.Key, line.Backend, string(line.Action), line.From, string(line.State))
	}
	return p.printf("%s: %s: %s (%s)", line.Key, line.Backend, string(line.Action), string(line.State))
}

func (p *repairPrinter) summary(s *repairSummary) error {
	note := ""
	if s.DryRun {
		note = "; this was a dry run, nothing was done"
	}
	return p.printf("%d keys compared, %d copied (%d bytes), %d deleted, %d kept, %d failed%s", s.Keys, s.Copied, s.Bytes, s.Deleted, s.Kept, s.Failed, note)
}

func (p *repairPrinter) verdict() error {
	p.bar.end()
	if p.failed > 0 {
		return fmt.Errorf("repair is incomplete: %d failures", p.failed)
	}
	return nil
}
