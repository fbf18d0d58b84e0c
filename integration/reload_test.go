package integration_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// Row 24: a probe that a reload cancels says nothing about its backend. The
// requests go out while the old config is on its way down: stock Caddy closes
// some of their connections unanswered, but an answer must be the right one.
func TestCase024AProbeThatAReloadCancelsIsNoFailure(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	config := func(i int) string {
		return fmt.Sprintf(`
			header >X-Backend {http.storage_mux.backend}
			storage_mux {
				timeout %ds
				health_interval 5ms
				cooldown 1h
				backend f1 http {$F1}
				backend m memory
			}`, 10+i%2)
	}
	c := rig.Start(t, config(0), rig.Env("F1", f1.URL()))
	wrong := make(map[int]int)
	for i := range 100 {
		if msg := c.Load(config(i + 1)); msg != "" {
			t.Fatal(msg)
		}
		if r, err := c.Try(rig.Request{Path: "/x"}); err == nil && r.Status != http.StatusOK {
			wrong[r.Status]++
		}
	}
	if len(wrong) > 0 {
		t.Errorf("wrong answers (status: times) to 100 requests: %v", wrong)
	}
}

// Requests that come to a tree once its config has ended find it, whatever the next config calls it.
func TestARenamedTreeRefusesNoRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := func(i int) string {
		return fmt.Sprintf("storage_mux {\nname t%d\nwritable\nbackend d file {$DIR} {\ncreate_root\n}\n}", i)
	}
	c := rig.Start(t, config(0), rig.Env("DIR", filepath.Join(dir, "d")))
	if r := c.Do(rig.Request{Method: http.MethodPut, Path: "/x", Body: strings.NewReader("body")}); r.Status != http.StatusCreated {
		t.Fatal(r.Status)
	}
	clients := loadOn(t, c)
	for i := range 30 {
		seen := clients.answered.Load()
		if msg := c.Load(config(i + 1)); msg != "" {
			t.Error(msg)
		}
		clients.goesOn(t, seen)
	}
	clients.stop()
}
