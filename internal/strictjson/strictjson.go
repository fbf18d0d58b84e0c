// Package strictjson decodes the JSON of configs and of the admin API, without
// fields that nobody knows, and says which field is wrong: encoding/json does so
// for some errors only, and in the words of Go.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Decode decodes data, one value, into what into points to. An error begins with
// the field, such as "backends[1].timeout", that it is about.
func Decode(data []byte, into any) error {
	err := decode(data, into)
	kind := reflect.TypeOf(into)
	if err == nil || kind.Kind() != reflect.Pointer {
		return err
	}
	path, why := locate(data, kind.Elem(), err)
	if path == "" {
		return why
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), why)
}

func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// locate finds what is wrong with a value that does not decode into a type: the
// path to it, "" for the value itself.
func locate(data []byte, kind reflect.Type, err error) (path string, why error) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if reflect.PointerTo(kind).Implements(unmarshaler) {
		return "", inWords(data, kind, err)
	}
	switch kind.Kind() {
	case reflect.Struct, reflect.Map:
		return locateIn(data, kind, err)
	case reflect.Slice, reflect.Array:
		var parts []json.RawMessage
		if json.Unmarshal(data, &parts) != nil {
			break
		}
		for i, part := range parts {
			if path, why := locatePart(part, kind.Elem()); why != nil {
				return fmt.Sprintf("[%d]%s", i, path), why
			}
		}
	default:
	}
	return "", inWords(data, kind, err)
}

// locateIn is locate for an object.
func locateIn(data []byte, kind reflect.Type, err error) (path string, why error) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(data, &parts) != nil {
		return "", inWords(data, kind, err)
	}
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		if of := fieldType(kind, key); of != nil {
			if path, why := locatePart(parts[key], of); why != nil {
				return "." + key + path, why
			}
		}
	}
	return "", inWords(data, kind, err)
}

// locatePart is locate for what may be right.
func locatePart(data []byte, kind reflect.Type) (path string, why error) {
	err := decode(data, reflect.New(kind).Interface())
	if err == nil {
		return "", nil
	}
	return locate(data, kind, err)
}

// fieldType returns the type that the value of a key has; nil: there is no such.
func fieldType(kind reflect.Type, key string) reflect.Type {
	if kind.Kind() == reflect.Map {
		return kind.Elem()
	}
	for _, field := range reflect.VisibleFields(kind) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && !field.Anonymous && name != "-" && strings.EqualFold(name, key) {
			return field.Type
		}
	}
	return nil
}

// inWords says what is wrong with a value, in the words of those who write
// configs.
func inWords(data []byte, kind reflect.Type, err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("there is none")
	}
	if kind == reflect.TypeFor[caddy.Duration]() && json.Valid(data) {
		return fmt.Errorf("must be a duration such as 30s, got %s", data)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("must be %s, got %s", wanted(kind), wrong.Value)
	}
	return err
}

// wanted names what a type takes.
func wanted(kind reflect.Type) string {
	switch kind.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a whole number"
	}
}
