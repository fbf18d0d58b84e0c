package caddymux

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

func init() { caddy.RegisterModule(new(S3Backend)) }

// S3Backend keeps objects in a bucket of Amazon S3, or of any service that speaks its protocol.
type S3Backend struct {
	// The bucket. It must be there. Required.
	Bucket string `json:"bucket,omitempty"`

	// The service: a host, with or without a port, or an `http://` or `https://` URL without a path. Default: Amazon's,
	// of the region.
	Endpoint string `json:"endpoint,omitempty"`

	// The region that requests are signed for. Default: the one in the endpoint's name, else `AWS_REGION` or
	// `AWS_DEFAULT_REGION`, else `us-east-1` until the service names another.
	Region string `json:"region,omitempty"`

	// The credentials, best as placeholders (`{env.X}`, `{file.X}`). Default: the standard AWS chain: environment, shared
	// files, web identity, the roles of the container and of the machine.
	AccessKey string `json:"access_key,omitempty"`
	SecretKey string `json:"secret_key,omitempty"`

	// The token of temporary credentials. Default: none.
	SessionToken string `json:"session_token,omitempty"`

	// Whether the bucket stands in the path of URLs (true), or in the name of the host (false). Default: in the name at
	// Amazon, Google and Alibaba, in the path elsewhere and where the bucket's name has a dot.
	PathStyle *bool `json:"path_style,omitempty"`

	// Put in front of every key. Default: none.
	Prefix string `json:"prefix,omitempty"`

	// The storage class of new objects. Objects of an archiving class cannot be read at once. Default: the bucket's.
	StorageClass string `json:"storage_class,omitempty"`

	// The size of the parts of large uploads, at least 5 MiB. Up to four of them are held in memory for each. Default:
	// 8 MiB, enough for bodies of unknown length up to 78 GiB.
	PartSize int64 `json:"part_size,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*S3Backend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".s3",
		New: func() caddy.Module { return new(S3Backend) },
	}
}

// Validate implements caddy.Validator.
func (b *S3Backend) Validate() error { return tryStore(b) }

// OpenStore implements [BackendType].
func (b *S3Backend) OpenStore() (muxcore.Store, error) {
	return s3store.New(s3store.Settings{
		Bucket: b.Bucket, Endpoint: b.Endpoint, Region: b.Region, AccessKey: b.AccessKey, SecretKey: b.SecretKey,
		SessionToken: b.SessionToken, PathStyle: b.PathStyle, Prefix: b.Prefix, StorageClass: b.StorageClass, PartSize: b.PartSize,
	})
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	s3 <bucket> {
//	    endpoint <host>|<url>
//	    region <region>
//	    access_key <key>
//	    secret_key <key>
//	    session_token <token>
//	    path_style [on|off]
//	    prefix <key-prefix>
//	    storage_class <class>
//	    part_size <size>
//	}
func (b *S3Backend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := onlyArgument(d, "s3", "bucket", &b.Bucket); err != nil {
		return err
	}
	if err := ParseOptions(d, SharedWords("s3"),
		Option{Word: "endpoint", Parse: addressOption(&b.Endpoint)},
		Option{Word: "region", Parse: TextOption(&b.Region)},
		Option{Word: "access_key", Parse: SecretOption(&b.AccessKey)},
		Option{Word: "secret_key", Parse: SecretOption(&b.SecretKey)},
		Option{Word: "session_token", Parse: SecretOption(&b.SessionToken)},
		Option{Word: "path_style", Parse: b.parsePathStyle},
		Option{Word: "prefix", Parse: TextOption(&b.Prefix)},
		Option{Word: "storage_class", Parse: TextOption(&b.StorageClass)},
		Option{Word: "part_size", Parse: SizeOption(&b.PartSize)},
	); err != nil {
		return err
	}
	return checkStore(d, b, b.texts()...)
}

// texts are the values that may have placeholders.
func (b *S3Backend) texts() []string {
	return []string{b.Bucket, b.Endpoint, b.Region, b.AccessKey, b.SecretKey, b.SessionToken, b.Prefix, b.StorageClass}
}

func (b *S3Backend) parsePathStyle(d *caddyfile.Dispenser) error {
	word := ""
	if d.NextArg() {
		word = d.Val()
	}
	return at(d, b.setPathStyle(word))
}

// setPathStyle takes on, off, or nothing, which is on.
func (b *S3Backend) setPathStyle(word string) error {
	if err := checkWord("path_style", word, "on", "off"); err != nil {
		return err
	}
	on := word != "off"
	b.PathStyle = &on
	return nil
}

// Schemes implements [Locator].
func (*S3Backend) Schemes() []string { return []string{"s3"} }

// UnmarshalLocation implements [Locator]: s3://bucket/prefix?endpoint=…&region=…, and path_style and storage_class. Keys do
// not stand in a location. No error quotes one.
func (b *S3Backend) UnmarshalLocation(location string) error {
	rest, query, _ := strings.Cut(location, "?")
	rest, ok := strings.CutPrefix(rest, "s3://")
	if !ok {
		return errors.New("s3: a location is s3://<bucket>[/<prefix>][?endpoint=<url>&region=<region>]")
	}
	if strings.Contains(rest, "@") {
		return errors.New("s3: a location holds no credentials: write backend <name> s3 <bucket> { … }")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("s3: what follows the ? of the location is no query")
	}
	into := map[string]*string{"endpoint": &b.Endpoint, "region": &b.Region, "storage_class": &b.StorageClass}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch value := values[name]; {
		case len(value) > 1:
			return fmt.Errorf("s3: %s: given twice in the location", name)
		case name == "path_style":
			if err := b.setPathStyle(value[0]); err != nil {
				return err
			}
		case into[name] != nil && value[0] == "":
			return fmt.Errorf("s3: %s: must not be empty in the location", name)
		case into[name] != nil:
			*into[name] = value[0]
		case slices.Contains(b.Credentials(), name):
			return fmt.Errorf("s3: %s: a location holds no credentials: write backend <name> s3 <bucket> { … }", name)
		default:
			return fmt.Errorf("s3: unknown option %q in the location, known are endpoint, path_style, region, storage_class", name)
		}
	}
	b.Bucket, b.Prefix, _ = strings.Cut(rest, "/")
	if slices.ContainsFunc(b.texts(), hasPlaceholder) {
		return nil
	}
	return tryStore(b)
}

// Place implements [Placed]. The same bucket may be there at another endpoint.
func (b *S3Backend) Place() string {
	place := b.Bucket
	if b.Prefix != "" {
		place += "/" + strings.Trim(b.Prefix, "/")
	}
	if b.Endpoint != "" && !strings.Contains(b.Endpoint, "@") {
		place += "?endpoint=" + b.Endpoint
	}
	return place
}

// Addresses implements [Addressed].
func (*S3Backend) Addresses() []string { return []string{"endpoint"} }

// Credentials implements [Credentialed].
func (*S3Backend) Credentials() []string {
	return []string{"access_key", "secret_key", "session_token"}
}

// ReadsFiles implements [FileReader]: authorities beside those of the system, as AWS's own clients know them.
func (*S3Backend) ReadsFiles() []string {
	if name := os.Getenv("AWS_CA_BUNDLE"); name != "" {
		return []string{name}
	}
	return nil
}

// Interface guards.
var (
	_ BackendType           = (*S3Backend)(nil)
	_ FileReader            = (*S3Backend)(nil)
	_ Locator               = (*S3Backend)(nil)
	_ Placed                = (*S3Backend)(nil)
	_ Addressed             = (*S3Backend)(nil)
	_ Credentialed          = (*S3Backend)(nil)
	_ caddy.Validator       = (*S3Backend)(nil)
	_ caddyfile.Unmarshaler = (*S3Backend)(nil)
)
