package oauthclients

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/writes"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/web"
)

// readBody reads a JSON object by the rules of JSON v2: member names match their case, and duplicates are refused.
// Unknown names are ignored.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, writes.MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return &client.Refusal{Message: "The body could not be read."}
	}
	if len(raw) == 0 {
		return io.EOF
	}
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		mediaType != "application/json" {
		return &client.Refusal{Message: "Content-Type must be application/json."}
	}
	if web.Encoded(r.Header) {
		return &client.Refusal{Message: web.EncodedWords}
	}
	isObject := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) // null would leave into unchanged
	if err := json.Unmarshal(raw, into); err != nil || !isObject {
		return &client.Refusal{
			Message: "The body must be one JSON object with the documented types and without duplicate keys.",
		}
	}
	return nil
}

func readRegistration(w http.ResponseWriter, r *http.Request) (client.Registration, error) {
	var body struct {
		Name       string   `json:"name"`
		Redirects  []string `json:"redirectUris"`
		Required   []string `json:"requiredPermissions"`
		Platform   *string  `json:"connectorPlatform"`
		Resource   *string  `json:"resource"`
		AuthMethod *string  `json:"tokenEndpointAuthMethod"`
	}
	err := readBody(w, r, &body)
	if errors.Is(err, io.EOF) {
		err = &client.Refusal{Message: "The body is empty."}
	}
	if err != nil {
		return client.Registration{}, err
	}
	registration := client.Registration{Name: body.Name, Redirects: body.Redirects, Required: body.Required}
	for _, member := range []struct {
		from *string
		to   *string
		name string
	}{
		{body.Platform, &registration.Platform, "connectorPlatform"},
		{body.Resource, &registration.Resource, "resource"},
		{body.AuthMethod, &registration.AuthMethod, "tokenEndpointAuthMethod"},
	} {
		if member.from == nil {
			continue
		}
		if *member.from == "" {
			return client.Registration{}, &client.Refusal{
				Field:   member.name,
				Message: member.name + " must not be empty. Omit it or set a value.",
			}
		}
		*member.to = *member.from
	}
	return registration, nil
}

func readExpireOld(w http.ResponseWriter, r *http.Request) (bool, error) {
	var body struct {
		ExpireOld bool `json:"expireOld"`
	}
	if err := readBody(w, r, &body); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return body.ExpireOld, nil
}

// A clientBody is the JSON of a client. It has the secret only in the response to the call that created it.
type clientBody struct {
	ClientID            string        `json:"clientId"`
	ClientSecret        string        `json:"clientSecret,omitempty"`
	Kind                string        `json:"kind"`
	WorkspaceID         string        `json:"tenantId"`
	Name                string        `json:"name"`
	RedirectURIs        []string      `json:"redirectUris"`
	RequiredPermissions []string      `json:"requiredPermissions"`
	ConnectorPlatform   string        `json:"connectorPlatform,omitempty"`
	Resource            string        `json:"resource,omitempty"`
	AuthMethod          string        `json:"tokenEndpointAuthMethod"`
	CreatedAt           jsontime.Time `json:"createdAt"`
}

func show(c client.Client, secret credential.Secret) clientBody {
	return clientBody{
		ClientID:            c.ID.String(),
		ClientSecret:        secret.Reveal(),
		Kind:                string(c.Kind),
		WorkspaceID:         c.WorkspaceID.String(),
		Name:                c.Name,
		RedirectURIs:        c.Redirects,
		RequiredPermissions: c.Required.Strings(),
		ConnectorPlatform:   c.Platform,
		Resource:            c.Resource,
		AuthMethod:          string(c.AuthMethod),
		CreatedAt:           jsontime.Time(c.CreatedAt),
	}
}
