package token

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Metadata returns the authorization server metadata of RFC 8414, section 2, for every URL where clients look for it
// (contract, section 1). issuer and appURL have no trailing slash. documents reports whether clients may use metadata
// documents.
func Metadata(issuer, appURL string, documents bool) ([]byte, error) {
	account := issuer + "/v1/account/oauth/"
	methods := []string{"none", "client_secret_post", "client_secret_basic"}
	document := map[string]any{
		"issuer":                                         issuer,
		"authorization_endpoint":                         appURL + "/oauth/authorize",
		"token_endpoint":                                 account + "token",
		"revocation_endpoint":                            account + "revoke",
		"introspection_endpoint":                         account + "introspect",
		"jwks_uri":                                       account + "jwks",
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          engine.GrantTypes(),
		"code_challenge_methods_supported":               []string{"S256"},
		"introspection_endpoint_auth_methods_supported":  []string{"client_secret_basic", "client_secret_post"},
		"scopes_supported":                               append(perm.ForConnectors().Strings(), "offline_access"),
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          documents,
		"token_endpoint_idempotency_key_supported":       true, // not registered with IANA
		"ui_locales_supported":                           []string{"en-GB"},
	}
	if documents { // only clients with a metadata document sign assertions
		methods = append(methods, string(client.PrivateKeyJWT))
		for _, endpoint := range []string{"token", "revocation"} {
			document[endpoint+"_endpoint_auth_signing_alg_values_supported"] = clientmetadata.Algorithms()
		}
	}
	document["token_endpoint_auth_methods_supported"] = methods
	document["revocation_endpoint_auth_methods_supported"] = methods
	return web.EncodeJSON(document)
}

// Document serves a public JSON document, the metadata or the public keys, that any web page may read and caches may
// store for five minutes. It never redirects.
func Document(document func() ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		body, err := document()
		if err != nil {
			unavailable := apierr.New(apierr.Unavailable, "The document is temporarily unavailable.")
			unavailable.Cause = err
			apierr.Write(w, apierr.Flat, unavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(body) // an error means that the client has closed the connection
	})
}
