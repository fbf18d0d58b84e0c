package swiftstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ncw/swift/v2"
)

// rackspaceURL is Rackspace's identity service, the same for all regions.
const rackspaceURL = "https://identity.api.rackspacecloud.com/v2.0"

// rackspaceAuth is version 2 as Rackspace has it: API keys, a region of the user's own, and the CDN in the catalogue.
type rackspaceAuth struct {
	region string
	answer rackspaceAnswer
}

type rackspaceAnswer struct {
	Access struct {
		Token struct {
			ID      string `json:"id"`
			Expires string `json:"expires"`
		} `json:"token"`
		User struct {
			Region string `json:"RAX-AUTH:defaultRegion"`
		} `json:"user"`
		Catalog []rackspaceService `json:"serviceCatalog"`
	} `json:"access"`
}

type rackspaceService struct {
	Type      string `json:"type"`
	Endpoints []struct {
		Region string `json:"region"`
		Public string `json:"publicURL"`
	} `json:"endpoints"`
}

// Request implements swift.Authenticator.
func (a *rackspaceAuth) Request(ctx context.Context, c *swift.Connection) (*http.Request, error) {
	body, err := json.Marshal(map[string]any{"auth": map[string]any{
		"RAX-KSKEY:apiKeyCredentials": map[string]string{"username": c.UserName, "apiKey": c.ApiKey},
	}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.AuthUrl, "/")+"/tokens", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.UserAgent)
	return req, nil
}

// Response implements swift.Authenticator.
func (a *rackspaceAuth) Response(_ context.Context, resp *http.Response) error {
	if err := json.NewDecoder(resp.Body).Decode(&a.answer); err != nil {
		return err
	}
	if a.region == "" {
		a.region = a.answer.Access.User.Region
	}
	if regions := a.regions(); a.region != "" && !slices.Contains(regions, strings.ToUpper(a.region)) {
		return &catalogueError{a.region, regions}
	}
	return nil
}

// catalogueError is a region that the account does not have.
type catalogueError struct {
	region  string
	regions []string
}

func (e *catalogueError) Error() string {
	return fmt.Sprintf("region %q: the account has Cloud Files in %s", e.region, strings.Join(e.regions, ", "))
}

// regions in which the account has an object store.
func (a *rackspaceAuth) regions() (regions []string) {
	for _, service := range a.answer.Access.Catalog {
		if service.Type == "object-store" {
			for _, e := range service.Endpoints {
				regions = append(regions, strings.ToUpper(e.Region))
			}
		}
	}
	slices.Sort(regions)
	return slices.Compact(regions)
}

// endpoint of a service in the region, "" where there is none.
func (a *rackspaceAuth) endpoint(kind string) string {
	for _, service := range a.answer.Access.Catalog {
		if service.Type != kind {
			continue
		}
		for _, e := range service.Endpoints {
			if a.region == "" || strings.EqualFold(a.region, e.Region) {
				return e.Public
			}
		}
	}
	return ""
}

// StorageUrl implements swift.Authenticator.
func (a *rackspaceAuth) StorageUrl(bool) string { return a.endpoint("object-store") }

// CdnUrl implements swift.Authenticator.
func (a *rackspaceAuth) CdnUrl() string { return a.endpoint("rax:object-cdn") }

// Token implements swift.Authenticator.
func (a *rackspaceAuth) Token() string { return a.answer.Access.Token.ID }

// Expires implements swift.Expireser.
func (a *rackspaceAuth) Expires() time.Time { return expiry(a.answer.Access.Token.Expires) }

// Interface guards.
var (
	_ swift.Authenticator = (*rackspaceAuth)(nil)
	_ swift.Expireser     = (*rackspaceAuth)(nil)
)
