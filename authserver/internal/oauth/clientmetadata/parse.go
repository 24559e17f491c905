package clientmetadata

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// parse decodes a document by the rules of JSON version 2. It rejects a duplicate key, a key in another case and a
// value of another type, because parsers would disagree about their meaning.
func parse(body []byte) (client.Document, error) {
	var read struct {
		ClientID      string         `json:"client_id"`
		Name          string         `json:"client_name"`
		Redirects     []string       `json:"redirect_uris"`
		GrantTypes    []string       `json:"grant_types"`
		ResponseTypes []string       `json:"response_types"`
		AuthMethod    string         `json:"token_endpoint_auth_method"`
		Keys          jsontext.Value `json:"jwks"`
		KeysURL       string         `json:"jwks_uri"`
		Secret        jsontext.Value `json:"client_secret"`
		SecretEnds    jsontext.Value `json:"client_secret_expires_at"`
	}
	if err := json.Unmarshal(body, &read); err != nil {
		return client.Document{}, &client.DocumentError{
			Message: "It is not a valid JSON object with client metadata, or a key appears more than once.",
		}
	}
	d := client.Document{
		ClientID:      read.ClientID,
		Name:          read.Name,
		Redirects:     read.Redirects,
		GrantTypes:    read.GrantTypes,
		ResponseTypes: read.ResponseTypes,
		AuthMethod:    read.AuthMethod,
		KeysURL:       read.KeysURL,
		Secret:        read.Secret != nil || read.SecretEnds != nil,
	}
	if read.Keys != nil && read.Keys.Kind() != 'n' {
		d.Keys = read.Keys
	}
	return d, nil
}
