package caddymux

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// backendNamespace is where the types of backends are registered.
const backendNamespace = "storage_mux.backends"

// BackendType is what a module in the namespace storage_mux.backends must be: a kind of store that a mux can have as a
// backend. The module's last name is its type in configs.
//
// Its JSON is decoded strictly, without the keys that all backends share (see [Backend]), and with the placeholders in
// its strings replaced: a module must not replace them again. Provision and Validate must not dial, must create
// nothing and start nothing; they also run for `caddy validate`, and again at every reload, although the store of an
// unchanged tree lives on. For the Caddyfile a type must be a caddyfile.Unmarshaler; it sees its own name, its
// arguments and its own options, and [ParseOptions] reads those.
type BackendType interface {
	caddy.Module

	// OpenStore makes the store. A tree calls it once at most, after Provision. It must neither dial nor create anything
	// yet: a dead backend cannot keep Caddy from starting. The store must not use the caddy.Context of the module, as it
	// may outlive it; if it is an io.Closer, the tree closes it when the last config and the last request have let go.
	OpenStore() (muxcore.Store, error)
}

// Optional abilities of a type of backend.
type (
	// Locator is a type that has a short form of one word, as the arguments of storage_mux itself.
	Locator interface {
		// Schemes lists what its locations begin with before the colon; "" is for paths in the file system.
		Schemes() []string

		// UnmarshalLocation sets the module up from a location.
		UnmarshalLocation(location string) error
	}

	// Placed is a type with a first argument that tells its stores apart, such as a folder or a bucket. It becomes part
	// of the default name of a tree, which tells trees apart; so it must not be a secret.
	Placed interface{ Place() string }

	// Credentialed is a type some of whose JSON keys hold secrets. Placeholders in their values that are unknown or
	// evaluate to nothing are load errors.
	Credentialed interface{ Credentials() []string }

	// Addressed is a type some of whose JSON keys say where its requests go. A placeholder in their values that evaluates to nothing is a
	// load error as well: credentials and objects would go to whoever is the default.
	Addressed interface{ Addresses() []string }

	// Rooted is a type whose objects are the files below a folder. The Caddyfile is hidden there.
	Rooted interface{ FileRoot() string }

	// FileReader is a type that reads files when its store is opened, such as certificates. What is in them counts as its config:
	// with an edit of one, the next load of a config makes the backend anew.
	FileReader interface{ ReadsFiles() []string }

	// InProcess is a type that may keep its objects in the process that opened it, where another process, such as a command, does not
	// see them.
	InProcess interface{ InProcess() bool }
)

// newBackendType makes an empty module of a type. The error lists the types that there are.
func newBackendType(kind string) (BackendType, error) {
	info, err := caddy.GetModule(backendNamespace + "." + kind)
	if err != nil || kind == "" || strings.Contains(kind, ".") {
		return nil, fmt.Errorf("unknown backend type %q, known are %s", kind, strings.Join(backendTypes(), ", "))
	}
	module, ok := info.New().(BackendType)
	if !ok {
		return nil, fmt.Errorf("backend type %q: module %s is no caddymux.BackendType", kind, info.ID)
	}
	return module, nil
}

// backendTypes lists the types that are compiled in.
func backendTypes() []string {
	var kinds []string
	for _, info := range caddy.GetModules(backendNamespace) {
		kinds = append(kinds, info.ID.Name())
	}
	slices.Sort(kinds)
	return kinds
}
