// Command licences checks that every module which is compiled into what the given folders hold, their tests included, has
// a licence that this project may be distributed under, and lists them.
//
//	go run ./licences .. . ../examples/backend-bolt
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are licences that ask for no more than a notice, or for the source of their own files alone.
var allowed = map[string]bool{
	"0BSD": true, "Apache-2.0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "BSD-2-Clause-FreeBSD": true, "BSL-1.0": true, "CC0-1.0": true,
	"ISC": true, "MIT": true, "MIT-0": true, "MPL-2.0": true, "MPL-2.0-no-copyleft-exception": true, "PSF-2.0": true, "Python-2.0": true,
	"Unicode-DFS-2016": true, "Unlicense": true, "Zlib": true,
}

// notCode are licences of documents and pictures that lie beside the code.
var notCode = map[string]bool{"CC-BY-3.0": true, "CC-BY-4.0": true, "CC-BY-SA-4.0": true, "OFL-1.1": true, "GooglePatentClause": true, "GooglePatentsFile": true}

// least is how much of a file must be known text for it to be believed.
const least = 70

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([-._].*)?$`)

// module is one that is compiled in.
type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

func main() {
	if err := check(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func check(folders []string) error {
	modules := make(map[string]*module)
	for _, folder := range folders {
		if err := compiled(folder, modules); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	var errs []error
	uses := make(map[string]int)
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		ids, err := licencesOf(m.Dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			continue
		}
		for _, id := range ids {
			uses[id]++
		}
		_, _ = fmt.Fprintf(os.Stdout, "%s %s: %s\n", m.Path, m.Version, strings.Join(ids, ", "))
	}
	if len(modules) == 0 {
		errs = append(errs, errors.New("no module was found"))
	}
	_, _ = fmt.Fprintf(os.Stdout, "%d modules: %v\n", len(modules), uses)
	return errors.Join(errs...)
}

// compiled adds the modules of others that the packages below folder are made of.
func compiled(folder string, into map[string]*module) error {
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=Module", "./...")
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for dec := json.NewDecoder(out); ; {
		var p struct{ Module *module }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return cmd.Wait()
		} else if err != nil {
			return errors.Join(err, cmd.Wait())
		}
		if m := p.Module; m != nil && !m.Main {
			if m.Replace != nil {
				if m.Replace.Version == "" {
					continue // a folder of this repository
				}
				m = m.Replace
			}
			into[m.Path+"@"+m.Version] = m
		}
	}
}

// licencesOf reads what stands at the top of a module. All of it must be allowed.
func licencesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool)
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || path.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		scan := licensecheck.Scan(text)
		if scan.Percent < least {
			return nil, fmt.Errorf("%s: only %.0f %% of it is text of a known licence", e.Name(), scan.Percent)
		}
		for _, match := range scan.Match {
			switch {
			case notCode[match.ID]:
			case !allowed[match.ID]:
				return nil, fmt.Errorf("%s: %s is not among the allowed licences", e.Name(), cmp.Or(match.ID, "an unknown licence"))
			default:
				found[match.ID] = true
			}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no licence was found")
	}
	return slices.Sorted(maps.Keys(found)), nil
}
