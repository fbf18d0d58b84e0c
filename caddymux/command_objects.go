package caddymux

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// timeLayout of lists and descriptions, in UTC.
const timeLayout = "2006-01-02 15:04:05"

func lsFlags(cmd *cobra.Command) {
	cmd.Flags().String("delimiter", "", "Show keys that go on after this word as one line, as with folders")
	cmd.Flags().String("after", "", "Begin after this key")
	cmd.Flags().Int("limit", 0, "Show at most so many lines; 0 all")
}

func runLs(x *call) error {
	opts := muxcore.ListOptions{Details: true, Delimiter: x.flag("delimiter"), After: x.flag("after"), Limit: flagOf(x.cmd.Flags().GetInt, "limit")}
	if len(x.args) > 0 {
		opts.Prefix = x.args[0]
	}
	if err := checkListOptions(&opts); err != nil {
		return err
	}
	var degraded []string
	opts.OnDegraded = func(backend string, _ error) { degraded = append(degraded, backend) }
	for entry, err := range x.tree.store.List(x.ctx, opts) {
		if err != nil {
			return err
		}
		if err := x.entry(&entry); err != nil {
			return err
		}
	}
	if len(degraded) > 0 {
		slices.Sort(degraded)
		return fmt.Errorf("the list lacks the part of %s", strings.Join(slices.Compact(degraded), ", "))
	}
	return nil
}

func checkListOptions(opts *muxcore.ListOptions) error {
	if opts.Limit < 0 {
		return fmt.Errorf("--limit: must be >= 0, got %d", opts.Limit)
	}
	if err := muxcore.CheckPrefix(opts.Prefix); err != nil {
		return err
	}
	if strings.HasPrefix(opts.Prefix, muxcore.ReservedPrefix) { // what Caddy keeps for itself; CheckKey says why
		return muxcore.CheckKey(opts.Prefix)
	}
	if opts.Delimiter != "" && muxcore.CheckPrefix("x"+opts.Delimiter+"x") != nil {
		return fmt.Errorf("--delimiter: %q cannot be in a key", opts.Delimiter)
	}
	if err := muxcore.CheckPrefix(strings.TrimSuffix(opts.After, "/")); err != nil {
		return fmt.Errorf("--after: %w", err)
	}
	return nil
}

func (x *call) entry(entry *muxcore.Entry) error {
	switch {
	case x.json && entry.IsPrefix:
		return x.line(map[string]string{"prefix": entry.Key})
	case x.json:
		return x.line(describeEntry(&entry.Info, entry.Key))
	case entry.IsPrefix:
		return x.printf("%12s  %19s  %s", "-", "-", entry.Key)
	}
	size, changed := "?", "-"
	if entry.Size >= 0 {
		size = fmt.Sprint(entry.Size)
	}
	if usefulModTime(entry.ModTime) {
		changed = entry.ModTime.UTC().Format(timeLayout)
	}
	return x.printf("%12s  %19s  %s", size, changed, entry.Key)
}

func runCat(x *call) error {
	if err := muxcore.CheckKey(x.args[0]); err != nil {
		return err
	}
	object, err := x.tree.store.Get(x.ctx, x.args[0], muxcore.GetOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = object.Body.Close() }() // it was only read
	bar := x.meter(object.Key, object.Length, x.out)
	defer bar.end()
	_, err = io.Copy(io.MultiWriter(x.out, bar), object.Body)
	return err
}

func putFlags(cmd *cobra.Command) {
	cmd.Flags().String("content-type", "", "Content-Type to store; default: by the key when it is served")
	cmd.Flags().String("cache-control", "", "Cache-Control to store")
	cmd.Flags().StringArrayP("meta", "m", nil, "name=value to store as X-Meta-<name>; may be given more than once")
	cmd.Flags().Bool("no-overwrite", false, "Fail if there is an object already")
}

// storedObject tells of an object that was stored.
type storedObject struct {
	listObject
	Created bool     `json:"created"`
	Missed  []string `json:"missed,omitempty"`
}

func runPut(x *call) error {
	key := x.args[0]
	opts := muxcore.PutOptions{}
	var err error
	if opts.Attributes, err = x.attributes(); err != nil {
		return err
	}
	if x.isSet("no-overwrite") {
		opts.Conditions.IfNoneMatch = "*"
	}
	if err := muxcore.CheckKey(key); err != nil {
		return err
	}
	if err := muxcore.CheckKeyOf(x.tree.store, key); err != nil {
		return err
	}
	x.hintRunning()
	body, size, err := x.source()
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	bar := x.meter(key, size, nil)
	defer bar.end()
	result, err := x.tree.store.Put(x.ctx, key, io.TeeReader(body, bar), size, opts)
	bar.end()
	if err != nil {
		return err
	}
	if x.json {
		return x.line(storedObject{describeEntry(&result.Info, key), !result.Existed, result.Missed})
	}
	if len(result.Missed) > 0 {
		return x.printf("%s: stored, missed by %s", key, strings.Join(result.Missed, ", "))
	}
	return x.printf("%s: stored", key)
}

// hintRunning says, before something is written, what is not known of a Caddy that may have the tree.
func (x *call) hintRunning() {
	if err := x.trees.unsure; err != nil {
		x.hint(fmt.Errorf("whether a Caddy runs with this tree is not known: %w", err))
	}
	x.hint(x.trees.note)
}

// source is what is to be put, and its length, -1 if that is not known.
func (x *call) source() (io.ReadCloser, int64, error) {
	if len(x.args) < 2 || x.args[1] == "-" {
		return x.interruptible(io.NopCloser(x.cmd.InOrStdin())), -1, nil
	}
	file, err := os.Open(x.args[1])
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder", x.args[1])
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() {
		return x.interruptible(file), -1, nil
	}
	return file, info.Size(), nil
}

// interruptible reads from what may never come, such as a terminal or a pipe, until the command is interrupted. A read that is under
// way then is left behind: nothing can end it, but the end of the process.
func (x *call) interruptible(from io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	stop := context.AfterFunc(x.ctx, func() { _ = w.CloseWithError(errInterrupted) })
	go func() {
		defer stop()
		_, err := io.Copy(w, from)
		_ = w.CloseWithError(err)
		_ = from.Close() // it was only read
	}()
	return r
}

// attributes are what the flags say about the object, under the rules of a PUT.
func (x *call) attributes() (muxcore.Attributes, error) {
	header := make(http.Header)
	for flag, field := range map[string]string{"content-type": "Content-Type", "cache-control": "Cache-Control"} {
		value := x.flag(flag)
		if !httpguts.ValidHeaderFieldValue(value) {
			return muxcore.Attributes{}, fmt.Errorf("--%s: %q cannot be the value of a header", flag, value)
		}
		if value != "" {
			header.Set(field, value)
		}
	}
	for _, word := range flagOf(x.cmd.Flags().GetStringArray, "meta") {
		name, value, ok := strings.Cut(word, "=")
		field := http.CanonicalHeaderKey(metaPrefix + name)
		if !ok || name == "" {
			return muxcore.Attributes{}, fmt.Errorf("--meta: must be name=value, got %q", word)
		}
		if !httpguts.ValidHeaderFieldName(field) {
			return muxcore.Attributes{}, fmt.Errorf("--meta: %q cannot be in the name of a header", name)
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return muxcore.Attributes{}, fmt.Errorf("--meta: %s: %q cannot be the value of a header", name, value)
		}
		if _, twice := header[field]; twice {
			return muxcore.Attributes{}, fmt.Errorf("--meta: %s is given twice", name)
		}
		header.Set(field, value)
	}
	return attributesOf(header)
}

func runRm(x *call) error {
	x.hintRunning()
	var failed []string
	for _, key := range x.args {
		var result muxcore.DeleteResult
		err := muxcore.CheckKey(key)
		if err == nil {
			result, err = x.tree.store.Delete(x.ctx, key, muxcore.DeleteOptions{})
		}
		if err != nil {
			failed = append(failed, key+": "+err.Error())
		}
		if err := x.removed(key, &result, err); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

// removed tells of a removal. Without JSON, a failure is told at the end.
func (x *call) removed(key string, result *muxcore.DeleteResult, failure error) error {
	if failure != nil && !x.json {
		return nil
	}
	if !x.json {
		if len(result.Missed) > 0 {
			return x.printf("%s: removed, missed by %s", key, strings.Join(result.Missed, ", "))
		}
		return x.printf("%s: removed", key)
	}
	line := map[string]any{"key": key, "removed": failure == nil}
	if failure != nil {
		line["code"], line["error"] = muxcore.CodeOf(failure), failure.Error()
	}
	if len(result.Missed) > 0 {
		line["missed"] = result.Missed
	}
	return x.line(line)
}

// describedObject is all that is known of an object.
type describedObject struct {
	listObject
	CacheControl       string            `json:"cache_control,omitempty"`
	ContentDisposition string            `json:"content_disposition,omitempty"`
	ContentEncoding    string            `json:"content_encoding,omitempty"`
	ContentLanguage    string            `json:"content_language,omitempty"`
	Expires            string            `json:"expires,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	SHA256             string            `json:"sha256,omitempty"`
	Backend            string            `json:"backend"`
}

func runStat(x *call) error {
	if err := muxcore.CheckKey(x.args[0]); err != nil {
		return err
	}
	info, err := x.tree.store.Stat(x.ctx, x.args[0], muxcore.Conditions{})
	if err != nil {
		return err
	}
	d := describedObject{
		listObject: describeEntry(&info, x.args[0]), CacheControl: info.CacheControl, ContentDisposition: info.ContentDisposition,
		ContentEncoding: info.ContentEncoding, ContentLanguage: info.ContentLanguage, Expires: info.Expires, Metadata: info.Metadata,
		SHA256: hex.EncodeToString(info.Digests.SHA256), Backend: info.Via.Backend,
	}
	if x.json {
		return x.line(&d)
	}
	return x.describe(&d, info.ModTime)
}

func (x *call) describe(d *describedObject, changed time.Time) error {
	size, at := "", ""
	if d.Size != nil {
		size = fmt.Sprint(*d.Size)
	}
	if d.LastModified != nil {
		at = changed.UTC().Format(timeLayout) + " UTC"
	}
	rows := [][2]string{
		{"key", d.Key},
		{"size", size},
		{"etag", d.ETag},
		{"last modified", at},
		{"content type", d.ContentType},
		{"cache control", d.CacheControl},
		{"content disposition", d.ContentDisposition},
		{"content encoding", d.ContentEncoding},
		{"content language", d.ContentLanguage},
		{"expires", d.Expires},
		{"sha256", d.SHA256},
		{"answered by", d.Backend},
	}
	for _, name := range slices.Sorted(maps.Keys(d.Metadata)) {
		rows = append(rows, [2]string{"meta " + name, d.Metadata[name]})
	}
	for _, row := range rows {
		if row[1] == "" {
			continue
		}
		if err := x.printf("%-20s %s", row[0]+":", row[1]); err != nil {
			return err
		}
	}
	return nil
}
