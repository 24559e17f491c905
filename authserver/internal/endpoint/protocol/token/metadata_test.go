package token_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// paths are the URLs where clients look for the metadata.
var paths = []string{
	"/.well-known/oauth-authorization-server",
	"/.well-known/oauth-authorization-server/mcp",
	"/.well-known/oauth-authorization-server/v1",
	"/.well-known/openid-configuration",
	"/.well-known/openid-configuration/mcp",
	"/.well-known/openid-configuration/v1",
	"/mcp/.well-known/oauth-authorization-server",
	"/mcp/.well-known/openid-configuration",
}

func TestMetadata_IsTheSameAtEveryURL(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	first := s.Send("GET", paths[0], "").Body
	for _, path := range paths {
		answer := s.Send("GET", path, "", "Origin", "https://inspector.example")
		if answer.Status != 200 || answer.Body != first || answer.Header.Get("Content-Type") != "application/json" ||
			answer.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: want the same document, for all origins\n%s", path, s.Explain(answer))
		}
		if head := s.Send("HEAD", path, ""); head.Status != 200 || head.Body != "" {
			t.Errorf("HEAD %s: %d", path, head.Status)
		}
		if post := s.Send("POST", path, ""); post.Status != 405 || post.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow %q", path, post.Status, post.Header.Get("Allow"))
		}
	}
}

func TestMetadata_DescribesServer(t *testing.T) {
	t.Parallel()
	document, err := token.Metadata(apitest.Issuer, apitest.AppURL, true)
	must(t, err)
	var got map[string]any
	must(t, json.Unmarshal(document, &got))
	for name, value := range map[string]any{
		"issuer":                           apitest.Issuer,
		"authorization_endpoint":           "https://app.example.org/oauth/authorize",
		"token_endpoint":                   "https://api.example.org/v1/account/oauth/token",
		"revocation_endpoint":              "https://api.example.org/v1/account/oauth/revoke",
		"introspection_endpoint":           "https://api.example.org/v1/account/oauth/introspect",
		"jwks_uri":                         "https://api.example.org/v1/account/oauth/jwks",
		"response_types_supported":         listed("code"),
		"grant_types_supported":            listed(engine.GrantTypes()...),
		"code_challenge_methods_supported": listed("S256"),
		"token_endpoint_auth_methods_supported": listed("none", "client_secret_post", "client_secret_basic",
			"private_key_jwt"),
		"token_endpoint_auth_signing_alg_values_supported": listed("ES256", "RS256", "PS256", "EdDSA"),
		"introspection_endpoint_auth_methods_supported":    listed("client_secret_basic", "client_secret_post"),
		"authorization_response_iss_parameter_supported":   true,
		"client_id_metadata_document_supported":            true,
		"token_endpoint_idempotency_key_supported":         true,
	} {
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s: %v, want %v", name, got[name], value)
		}
	}
	if _, there := got["registration_endpoint"]; there {
		t.Error("open registration is advertised, and there is none")
	}
	scopes, _ := got["scopes_supported"].([]any)
	if !slices.Contains(scopes, "offline_access") || slices.Contains(scopes, "account:api:access") ||
		len(scopes) != len(perm.ForConnectors())+1 {
		t.Errorf("scopes_supported: %v", scopes)
	}
}

func TestKeySet_HoldsOnlyPublicKeys(t *testing.T) {
	t.Parallel()
	s := apitest.Shared(t)
	answer := s.Send("GET", "/v1/account/oauth/jwks", "")
	keys, _ := answer.Object()["keys"].([]any)
	if answer.Status != 200 || len(keys) != 2 || answer.Header.Get("Cache-Control") != "public, max-age=300" ||
		answer.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Fatalf("%d, %d keys, %v", answer.Status, len(keys), answer.Header)
	}
	seen := map[any]bool{}
	for _, one := range keys {
		key, _ := one.(map[string]any)
		if key["kty"] != "EC" || key["crv"] != "P-256" || key["alg"] != "ES256" || key["use"] != "sig" ||
			key["kid"] == nil ||
			seen[key["kid"]] {
			t.Errorf("key %v", key["kid"])
		}
		if _, private := key["d"]; private {
			t.Error("a private key is published")
		}
		seen[key["kid"]] = true
	}
}

func TestDocument_ErrorIs503(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	failing := token.Document(func() ([]byte, error) { return nil, errors.New("no key is loaded") })
	failing.ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	if recorder.Code != 503 || recorder.Header().Get("Retry-After") == "" ||
		recorder.Header().Get("Cache-Control") != "no-store" ||
		strings.Contains(recorder.Body.String(), "no key is loaded") {
		t.Errorf("%d %v %s", recorder.Code, recorder.Header(), recorder.Body)
	}
}
