package caddymux

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is hidden by its place on the disk is so too in a folder that comes to the tree at run time, itself or by a tree that is used.
func TestFilesAreHiddenInFoldersThatAreAddedAtRunTime(t *testing.T) {
	const options = "storage_mux inner failover {\n on_miss next\n backend m memory\n}\nstorage_mux outer failover {\n on_miss next\n backend n mux {\n  on_miss next\n  backend m memory\n }\n backend u use inner\n}"
	for name, call := range map[string][2]string{
		"to the tree":              {"outer", `"name":"f","type":"file"`},
		"to a mux in it":           {"outer", `"name":"n.f","type":"file"`},
		"with a mux":               {"outer", `"name":"x","type":"mux","backends":[{"name":"f","type":"file"}]`},
		"to a tree that it uses":   {"inner", `"name":"f","type":"file"`},
		"by way of the outer tree": {"outer", `"name":"u.f","type":"file"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := runWith(t, options, "storage_mux {\n use outer\n list\n hide {{dir}}/extra/secret.txt\n}")
			dir := filepath.Join(c.dir, "extra")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"secret.txt", "open.txt"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.expect(http.StatusNotFound, "GET", "/open.txt", "")
			body := "{" + strings.Replace(call[1], `"type":"file"`, `"type":"file","root":"`+dir+`"`, 1) + "}"
			if status, text := adminCall(t, "POST", adminPath+"/"+call[0]+"/backends", body); status != http.StatusOK {
				t.Fatalf("adding = %d %s", status, text)
			}
			c.expect(http.StatusOK, "GET", "/open.txt", "")
			c.expect(http.StatusNotFound, "GET", "/secret.txt", "")
			if got := c.expect(http.StatusOK, "GET", "/?list", ""); strings.Contains(got.body, "secret") || !strings.Contains(got.body, "open.txt") {
				t.Errorf("the list is %s", got.body)
			}
		})
	}
}
