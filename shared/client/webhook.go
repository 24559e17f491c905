package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookTolerance is by how much the timestamp of a webhook may differ from the clock of the program.
const WebhookTolerance = 5 * time.Minute

// ErrWebhook matches the error of a request that is not a webhook of Almoner, or is too old or too new. Answer it with
// status 400 or 401.
var ErrWebhook = errors.New("almoner: not a valid webhook")

// A WebhookEvent is what Almoner sent to a webhook endpoint.
type WebhookEvent struct {
	// ID is the same each time the event is sent. Store it, and ignore an event whose ID is stored.
	ID        string    `json:"-"`
	Type      string    `json:"type"` // such as programme.created, or webhook.test
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		ID      string   `json:"id"`
		Changed []string `json:"changed"` // names of the changed fields of an update
	} `json:"data"`
	WorkspaceID string `json:"workspaceId"`
	Sequence    int64  `json:"sequence"` // 0 for webhook.test
}

// A WebhookVerifier verifies the requests to a webhook endpoint (Standard Webhooks).
type WebhookVerifier struct {
	keys [][]byte
	// Now is the clock. Do not change it while the verifier is in use.
	Now func() time.Time
}

const webhookPrefix = "whsec_"

// NewWebhookVerifier returns the verifier of an endpoint with this secret. With several secrets, such as those of
// endpoints of several workspaces at one URL, any of them is accepted.
func NewWebhookVerifier(secrets ...Secret) (*WebhookVerifier, error) {
	v := &WebhookVerifier{Now: time.Now}
	for _, secret := range secrets {
		text, found := strings.CutPrefix(secret.Reveal(), webhookPrefix)
		key, err := base64.StdEncoding.DecodeString(text)
		if !found || err != nil || len(key) < 24 {
			return nil, errors.New("almoner: the secret of a webhook endpoint must begin with " + webhookPrefix)
		}
		v.keys = append(v.keys, key)
	}
	if len(v.keys) == 0 {
		return nil, errors.New("almoner: a webhook verifier requires a secret")
	}
	return v, nil
}

// Verify returns the event of a request with this header and this body, as it was received. Its error matches
// ErrWebhook.
func (v *WebhookVerifier) Verify(header http.Header, body []byte) (WebhookEvent, error) {
	id, sent := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if id == "" || strings.Contains(id, ".") {
		return WebhookEvent{}, fmt.Errorf("%w: no webhook-id", ErrWebhook)
	}
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil {
		return WebhookEvent{}, fmt.Errorf("%w: no webhook-timestamp", ErrWebhook)
	}
	if !v.signed(header.Get("Webhook-Signature"), id+"."+sent+".", body) {
		return WebhookEvent{}, fmt.Errorf("%w: no signature with the secret of the endpoint", ErrWebhook)
	}
	if age := v.Now().Sub(time.Unix(seconds, 0)); age > WebhookTolerance || age < -WebhookTolerance {
		return WebhookEvent{}, fmt.Errorf("%w: it was sent more than 5 minutes ago, or the clock is wrong", ErrWebhook)
	}
	e := WebhookEvent{ID: id}
	if err := json.Unmarshal(body, &e); err != nil {
		return WebhookEvent{}, fmt.Errorf("%w: the body is no JSON", ErrWebhook)
	}
	return e, nil
}

// signed reports whether one of the signatures, which spaces separate, is that of the content with one of the keys.
func (v *WebhookVerifier) signed(signatures, prefix string, body []byte) bool {
	for _, key := range v.keys {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(prefix)) // never fails
		_, _ = mac.Write(body)
		want := mac.Sum(nil)
		for signature := range strings.FieldsSeq(signatures) {
			text, found := strings.CutPrefix(signature, "v1,")
			got, err := base64.StdEncoding.DecodeString(text)
			if found && err == nil && hmac.Equal(got, want) {
				return true
			}
		}
	}
	return false
}
