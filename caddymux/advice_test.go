package caddymux

import (
	"strings"
	"testing"
)

func TestConfigThatIsHardlyMeantIsALoadWarning(t *testing.T) {
	const strays = "an object may be on another backend"
	for directive, want := range map[string]string{
		"storage_mux round_robin memory: memory: {\n writable\n name t\n}":                                               "t: " + strays,
		"storage_mux round_robin memory: memory: {\n writable\n on_miss next\n}":                                         "",
		"storage_mux round_robin memory: memory:":                                                                        "",
		"storage_mux round_robin memory: {\n writable\n}":                                                                "",
		"storage_mux memory: memory: {\n writable\n}":                                                                    "",
		"storage_mux {\n writable\n name t\n backend n mux sticky-by-key {\n backend a memory\n backend b memory\n }\n}": "t.n: " + strays,
		"storage_mux memory: {\n hash rendezvous\n name t\n}":                                                            "t: hash rendezvous has no effect in mode failover",
		"storage_mux sticky_by_key memory: {\n hash rendezvous\n}":                                                       "",
		"storage_mux shield memory: memory: {\n write_quorum all\n name t\n}":                                            "t: write_quorum has no effect in mode shield",
		"storage_mux mirror memory: memory: {\n write_quorum all\n}":                                                     "",
		"storage_mux mirror memory: memory: {\n hedge auto\n name t\n}":                                                  "t: hedge has no effect in mode mirror",
		"storage_mux shield {\n writable\n name t\n backend a memory {\n read_only\n }\n backend b memory\n}":            "t: the origin of the shield is read_only",
		"storage_mux memory: memory: {\n read_repair on\n name t\n}":                                                     "t: read_repair has no effect in mode failover",
		"storage_mux memory: memory: {\n read_repair on\n on_miss next\n}":                                               "",
		"storage_mux mirror memory: memory: {\n read_repair on\n}":                                                       "",
		"storage_mux shield {\n backend a memory {\n read_only\n }\n backend b memory\n}":                                "",
	} {
		h := provisioned(t, directive)
		got := h.tree.root.advice(h.Writable)
		if len(got) > 1 || want == "" && len(got) > 0 || !strings.HasPrefix(strings.Join(got, "; "), want) {
			t.Errorf("%q: advice %q, want %q", directive, got, want)
		}
	}
}
