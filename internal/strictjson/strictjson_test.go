package strictjson

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

type options struct {
	Wait  caddy.Duration `json:"wait"`
	Count *int           `json:"count"`
	Share float64        `json:"share"`
}

type inner struct {
	options

	Name string          `json:"name"`
	Raw  json.RawMessage `json:"raw"`
	on   bool
}

type outer struct {
	options

	On    bool              `json:"on"`
	One   *inner            `json:"one"`
	All   []inner           `json:"all"`
	Named map[string]*inner `json:"named"`
	Words []string          `json:"words"`
}

func TestAnErrorNamesTheFieldAndWhatItTakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"wait": "x"}`:                       `wait: must be a duration such as 30s, got "x"`,
		`{"WAIT": true}`:                      `WAIT: must be a duration such as 30s, got true`,
		`{"count": 1.5}`:                      `count: must be a whole number, got number 1.5`,
		`{"count": "1"}`:                      `count: must be a whole number, got string`,
		`{"share": "5%"}`:                     `share: must be a number, got string`,
		`{"on": 1}`:                           `on: must be true or false, got number`,
		`{"words": "a"}`:                      `words: must be a list, got string`,
		`{"words": ["a", 1]}`:                 `words[1]: must be a string, got number`,
		`{"one": []}`:                         `one: must be an object, got array`,
		`{"one": {"wait": "x"}}`:              `one.wait: must be a duration such as 30s, got "x"`,
		`{"all": [{}, {"count": {}}]}`:        `all[1].count: must be a whole number, got object`,
		`{"named": {"a": {"wait": "1"}}}`:     `named.a.wait: must be a duration such as 30s, got "1"`,
		`{"named": {"a": {"nonsense": "1"}}}`: `named.a: json: unknown field "nonsense"`,
		`{"on": true, "nonsense": 1}`:         `json: unknown field "nonsense"`,
		`[]`:                                  `must be an object, got array`,
		`{} {}`:                               `more than one value`,
		``:                                    `there is none`,
	} {
		if err := Decode([]byte(text), new(outer)); err == nil || err.Error() != want {
			t.Errorf("Decode(%s) = %v, want %s", text, err, want)
		}
	}
}

func TestWhatIsRightIsDecoded(t *testing.T) {
	var got outer
	err := Decode([]byte(`{"wait": "1d", "count": 2, "one": {"name": "x", "raw": {"any": 1}}, "all": [{}], "named": {"a": null}}`), &got)
	if err != nil || got.Wait == 0 || *got.Count != 2 || got.One.Name != "x" || string(got.One.Raw) != `{"any": 1}` || len(got.All) != 1 || got.One.on {
		t.Errorf("Decode = %+v, %v", got, err)
	}
}
