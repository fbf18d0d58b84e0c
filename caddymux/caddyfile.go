package caddymux

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	// The one that is registered first comes first: a status page beside a storage_mux for everything must not be taken for a key.
	httpcaddyfile.RegisterHandlerDirective(statusDirective, parseStatusDirective)
	httpcaddyfile.RegisterDirectiveOrder(statusDirective, httpcaddyfile.Before, "file_server")
	httpcaddyfile.RegisterDirective("storage_mux", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("storage_mux", httpcaddyfile.Before, "file_server")
}

// parseDirective parses the storage_mux directive. See UnmarshalCaddyfile for the syntax.
func parseDirective(helper httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !helper.Next() {
		return nil, helper.ArgErr()
	}
	h := new(Handler)
	if helper.NextArg() {
		if strings.HasPrefix(helper.Val(), "/") {
			h.readAsMatcher = helper.Val()
		}
		helper.Prev()
	}
	matchers, err := helper.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	if err := h.UnmarshalCaddyfile(helper.Dispenser); err != nil {
		return nil, err
	}
	if h.Use != "" && !hasPlaceholder(h.Use) {
		if err := checkDeclared(h.Use, helper.Option(appID)); err != nil {
			return nil, at(&h.usePlace, err)
		}
	}
	if err := checkDeclaredUses(h.uses, helper.Option(appID)); err != nil {
		return nil, err
	}
	h.hideCaddyfiles(helper.Caddyfiles())
	return helper.NewRoute(matchers, h), nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens:
//
//	storage_mux [<matcher>] [<mode>] [<location>...] {
//	    use <tree>
//	    name <name>
//	    <tree options and backends: see Mux.options>
//
//	    prefix <key-prefix>
//	    index <file>...|off
//	    writable
//	    list
//	    max_size <size>
//	    pass_thru
//	    hide <pattern>...
//	    status <code>
//	}
//
// The first argument is a mode if it names one. A location is a backend in short: memory:, a path that begins with /, ./
// or ../, file:///, http:// or https://.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if !d.Next() {
		return d.ArgErr()
	}
	p := newMuxParser(&h.Mux, 1)
	start := *d
	if err := p.head(d); err != nil {
		return err
	}
	if err := ParseOptions(d, nil, append(h.options(), p.options()...)...); err != nil {
		return err
	}
	h.uses = *p.uses
	if len(h.Backends) == 0 && h.Use == "" && h.readAsMatcher != "" {
		return start.Errf("storage_mux %[1]s: no backend: %[1]q was read as a path matcher, as a first argument that begins with / always is;"+
			" for a folder write \"storage_mux * %[1]s\" or \"storage_mux failover %[1]s\"", h.readAsMatcher)
	}
	if h.Use != "" {
		return at(&h.usePlace, checkAlone(h.Name, &h.Mux))
	}
	return p.check(&start)
}

// options are the handler's own. A newcomer is one row here, one field in Handler.
func (h *Handler) options() []Option {
	return []Option{
		{Word: "use", Parse: h.parseUse},
		{Word: "name", Parse: h.parseName},
		{Word: "prefix", Parse: h.parsePrefix},
		{Word: "index", Parse: h.parseIndex},
		{Word: "writable", Parse: FlagOption(&h.Writable)},
		{Word: "list", Parse: FlagOption(&h.List)},
		{Word: "max_size", Parse: SizeOption(&h.MaxSize)},
		{Word: "pass_thru", Parse: FlagOption(&h.PassThru)},
		{Word: "hide", Repeats: true, Parse: h.parseHide},
		{Word: "status", Parse: h.parseStatus},
	}
}

func (h *Handler) parseUse(d *caddyfile.Dispenser) error {
	err := TextOption(&h.Use)(d)
	h.usePlace = *d
	return err
}

func (h *Handler) parseName(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	h.Name = d.Val()
	if hasPlaceholder(h.Name) {
		return nil
	}
	return at(d, checkName("tree", h.Name))
}

func (h *Handler) parsePrefix(d *caddyfile.Dispenser) error {
	if err := TextOption(&h.Prefix)(d); err != nil {
		return err
	}
	return at(d, checkPlain("prefix", strings.Trim(h.Prefix, "/")))
}

func (h *Handler) parseIndex(d *caddyfile.Dispenser) error {
	h.Index = []string{}
	if err := listOption(&h.Index)(d); err != nil {
		return err
	}
	if len(h.Index) == 1 && h.Index[0] == "off" {
		h.Index = []string{}
	}
	for _, name := range h.Index {
		if err := checkPlain("index", name); err != nil {
			return at(d, err)
		}
	}
	return nil
}

func (h *Handler) parseHide(d *caddyfile.Dispenser) error {
	if err := listOption(&h.Hide)(d); err != nil {
		return err
	}
	_, err := newHideList(h.Hide, nil)
	return at(d, err)
}

func (h *Handler) parseStatus(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	h.Status = caddyhttp.WeakString(d.Val())
	if hasPlaceholder(d.Val()) {
		return nil
	}
	return at(d, h.provisionStatus())
}

// hideCaddyfiles hides the files that the config is read from, as file_server does.
func (h *Handler) hideCaddyfiles(files []string) {
	for _, file := range files {
		file = filepath.Clean(file)
		if !strings.Contains(file, string(filepath.Separator)) {
			// Without a separator every key of that name would be hidden; this one file is meant.
			file = "." + string(filepath.Separator) + file
		}
		h.Hide = append(h.Hide, file)
	}
}

// Interface guards.
var _ caddyfile.Unmarshaler = (*Handler)(nil)

// errTwice is for what can be given as an argument or in the block.
func errTwice(d *caddyfile.Dispenser, what string) error {
	return d.WrapErr(fmt.Errorf("%s: given twice", what))
}
