package engine

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// twoClients is a Clients with a connector and a confidential client.
type twoClients map[uuid.UUID]client.Client

func (c twoClients) Client(_ context.Context, id uuid.UUID) (client.Client, error) {
	if one, ok := c[id]; ok {
		return one, nil
	}
	return client.Client{}, client.ErrUnknown
}

func (c twoClients) ClientWithSecret(ctx context.Context, id uuid.UUID, _ []byte) (client.Client, error) {
	return c.Client(ctx, id)
}

func (c twoClients) RecentClient(ctx context.Context, id uuid.UUID) (client.Client, error) {
	return c.Client(ctx, id)
}

// FuzzAuthorizeQuery checks that any query leads to a page, to a redirect with an error code of the RFC, or to a
// request for no more than its client may have, with all values taken from the query as net/url parses it.
func FuzzAuthorizeQuery(f *testing.F) {
	const callback, rest, mcp = "https://a.example/cb?x=1", "https://api.example.org/v1", "https://api.example.org/mcp"
	connector := client.Client{
		ID:        uuid.MustParse("0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"),
		Kind:      client.Connector,
		Resource:  mcp,
		Redirects: []string{callback},
		Required:  perm.NewSet(perm.ProgrammesRead, perm.EngageReadForms),
	}
	confidential := client.Client{
		ID:        uuid.MustParse("0190c5d2-7f3a-7c11-9d0e-000000000000"),
		Kind:      client.Confidential,
		Redirects: []string{callback},
		Required:  perm.NewSet(perm.ProgrammesRead),
	}
	e := New(Deps{
		Issuer:       "https://api.example.org",
		RESTResource: rest,
		Resources:    []string{rest, mcp},
		Clients:      twoClients{connector.ID: connector, confidential.ID: confidential},
		Documents:    clientmetadata.New(clientmetadata.Deps{}), // serves none
	})
	good := url.Values{
		"client_id":             {connector.ID.String()},
		"redirect_uri":          {callback},
		"state":                 {"s"},
		"response_type":         {"code"},
		"resource":              {mcp},
		"code_challenge":        {strings.Repeat("A", 43)},
		"code_challenge_method": {"S256"},
		"scope":                 {"programmes:read:programmes offline_access"},
	}.Encode()
	plain := url.Values{"client_id": {confidential.ID.String()}, "redirect_uri": {callback}, "state": {"s"}}.Encode()
	for _, seed := range []string{
		good,
		plain,
		good + "&state=t",
		good + "&prompt=consent",
		plain + "&scope=%00",
		plain + "&response_type=CODE",
		strings.Replace(good, "S256", "plain", 1),
		plain + "&request_uri=x&response_mode=fragment",
		plain + "&request=x",
		plain + "&response_mode=fragment",
		strings.ToUpper(plain),
		plain + "&code_challenge=x",
		"client_id=%zz",
		"a;b",
		"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		app, err := e.Identify(t.Context(), raw)
		if err != nil {
			if _, isPage := errors.AsType[*PageError](err); !isPage {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		query, _ := url.ParseQuery(raw)
		if app.RedirectURI != callback || query.Get("redirect_uri") != callback ||
			query.Get("client_id") != app.Client.ID.String() ||
			len(query["state"]) > 1 {
			t.Fatalf("%q was identified", raw)
		}
		request, err := e.ParseAuthorization(t.Context(), app)
		if err != nil {
			refused, isRedirect := errors.AsType[*RedirectError](err)
			known := []string{"invalid_request", "unsupported_response_type", "invalid_target", "invalid_scope",
				"request_not_supported", "request_uri_not_supported"}
			if !isRedirect || !slices.Contains(known, refused.Code) || refused.Description == "" ||
				(refused.State != "" && refused.State != query.Get("state")) {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		traits := app.Client.Kind.Traits()
		if len(request.State) == 0 || string(request.State) != query.Get("state") || len(request.State) > maxState ||
			len(request.Permissions) == 0 || !app.Client.Required.HasAll(request.Permissions) ||
			request.Challenge != query.Get("code_challenge") ||
			(traits.PKCERequired && request.Challenge == "") ||
			(query.Has("resource") && query.Get("resource") != "" && request.Resource != query.Get("resource")) ||
			(traits.PKCERequired && request.Resource != mcp) ||
			(!traits.PKCERequired && request.Resource != rest) ||
			!slices.Contains([]string{"", "code"}, query.Get("response_type")) {
			t.Errorf("%q became the request %+v", raw, request)
		}
	})
}
