package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The table of docs/cases.md and the names of the tests agree: each row has tests, each of them exists, and each that is named
// after a row stands in it.
func TestEveryCaseHasItsTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	existing := allTests(t)
	listed := make(map[int][]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		row, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // the head of the table
		}
		for name := range strings.FieldsSeq(cells[3]) {
			name = strings.Trim(name, "`,")
			listed[row] = append(listed[row], name)
			if !existing[name] {
				t.Errorf("row %d names %s, which does not exist", row, name)
			}
		}
		if len(listed[row]) == 0 {
			t.Errorf("row %d has no test", row)
		}
	}
	if len(listed) < 70 {
		t.Errorf("%d rows, want all", len(listed))
	}
	for name := range existing {
		for _, row := range rowsOf(name) {
			if !slices.Contains(listed[row], name) {
				t.Errorf("row %d lacks %s", row, name)
			}
		}
	}
}

// The tests that SECURITY.md names exist.
func TestEveryPromiseOfSecurityHasItsTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllString(string(text), -1)
	if len(named) < 30 {
		t.Errorf("%d tests are named, want those of each promise", len(named))
	}
	existing := allTests(t)
	for _, name := range named {
		if !existing[name] {
			t.Errorf("SECURITY.md names %s, which does not exist", name)
		}
	}
}

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	rowName  = regexp.MustCompile(`^TestCase(\d+)((?:And\d+)*)(?:To(\d+))?`)
	rowParts = regexp.MustCompile(`\d+`)
)

// rowsOf are the rows that a test is named after: one (TestCase043…), several (And045) or the ends of a span (To048), of
// which not every number need be a row.
func rowsOf(name string) (rows []int) {
	m := rowName.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	for _, digits := range append([]string{m[1], m[3]}, rowParts.FindAllString(m[2], -1)...) {
		if n, err := strconv.Atoi(digits); err == nil {
			rows = append(rows, n)
		}
	}
	return rows
}

// allTests are the names of all tests of the repository.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.' {
			return skipOr(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing: %w", err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// skipOr is err, or without one says that a folder is not ours.
func skipOr(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
