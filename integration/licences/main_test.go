package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLicencesAreToldByTheirText(t *testing.T) {
	ours, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or (at your option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.

You should have received a copy of the GNU General Public License along with this program. If not, see <https://www.gnu.org/licenses/>.`
	for name, row := range map[string]struct{ file, text, want, err string }{
		"ours":               {"LICENSE", string(ours), "Apache-2.0", ""},
		"one that asks more": {"COPYING", gpl, "", "is not among the allowed"},
		"words of one's own": {"LICENCE.md", strings.Repeat("Do as you like, but not on Sundays. ", 20), "", "of a known licence"},
		"none":               {"README", string(ours), "", "no licence was found"},
		"code of that name":  {"license.go", string(ours), "", "no licence was found"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, row.file), []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		ids, err := licencesOf(dir)
		if strings.Join(ids, ",") != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %v, %v, want %q, %q", name, ids, err, row.want, row.err)
		}
	}
}
