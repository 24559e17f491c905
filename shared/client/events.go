package client

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Events reads the changes in the workspace (contract, section 6a).
type Events struct{ c *caller }

// An Event describes a change of a record. It does not contain the values of the record.
type Event struct {
	Sequence  int64     `json:"sequence"` // increases; pass the last one to List to continue after it
	Type      string    `json:"type"`     // such as programme.updated
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData names the record that changed.
type EventData struct {
	ID      string   `json:"id"`
	Changed []string `json:"changed"` // names of the changed fields, for an update
}

const eventsPath = "/v1/events"

// List returns the events of the last 30 days after a sequence, oldest first. A sequence of 0 returns all of them. To
// follow changes, store the sequence of the last event that the program has handled, and pass it to the next call: no
// event is missed or returned twice.
func (e Events) List(ctx context.Context, after int64) iter.Seq2[Event, error] {
	query := url.Values{}
	if after != 0 {
		query.Set("after", strconv.FormatInt(after, 10))
	}
	return list[Event](ctx, e.c, e.c.get(eventsPath, query))
}

// WebhookTolerance is the maximum difference between the timestamp of a webhook and the clock of the program.
const WebhookTolerance = 5 * time.Minute

// ErrWebhook matches the error of a request that is not a webhook of Almoner, or is too old or too new. Answer it with
// status 400 or 401.
var ErrWebhook = errors.New("almoner: not a valid webhook")

// A WebhookEvent is an event that Almoner sent to a webhook endpoint.
type WebhookEvent struct {
	// ID is the same each time the event is sent. Store it, and ignore events whose ID is already stored.
	ID        string    `json:"-"`
	Type      string    `json:"type"` // such as programme.created, or webhook.test
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		ID      string   `json:"id"`
		Changed []string `json:"changed"` // names of the changed fields, for an update
		// The record when the event was sent, if the endpoint includes personal data and the record is still stored.
		Submission *Submission `json:"submission"`
		Supporter  *Supporter  `json:"supporter"` // of the submission, once it was processed
		Member     *Member     `json:"member"`
	} `json:"data"`
	WorkspaceID string `json:"workspaceId"`
	Sequence    int64  `json:"sequence"` // 0 for webhook.test
}

// A Supporter is the sender of a submission, as far as the answers identify them.
type Supporter struct {
	ID        string    `json:"id"`
	Email     string    `json:"email"` // "" if not given, like Phone and Name
	Phone     string    `json:"phone"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
}

// A Member is a user of the workspace.
type Member struct {
	UserID string `json:"userId"`
	Name   string `json:"name"`
	Email  string `json:"email"`
}

// A WebhookVerifier verifies the requests to a webhook endpoint (Standard Webhooks).
type WebhookVerifier struct {
	keys [][]byte
	// Now is the clock. Do not change it while the verifier is in use.
	Now func() time.Time
}

const webhookPrefix = "whsec_"

// NewWebhookVerifier returns a verifier for an endpoint with this secret. If several secrets are given, for example
// because endpoints of several workspaces have one URL, a signature with any of them is accepted. It returns an error
// if there is no secret or a secret does not begin with "whsec_".
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

// Verify checks the signature of a request and returns its event. body must be the body exactly as received. The error
// matches ErrWebhook.
func (w *WebhookVerifier) Verify(header http.Header, body []byte) (WebhookEvent, error) {
	id, sent := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if id == "" || strings.Contains(id, ".") {
		return WebhookEvent{}, fmt.Errorf("%w: no webhook-id", ErrWebhook)
	}
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil {
		return WebhookEvent{}, fmt.Errorf("%w: no webhook-timestamp", ErrWebhook)
	}
	if !w.signed(header.Get("Webhook-Signature"), id+"."+sent+".", body) {
		return WebhookEvent{}, fmt.Errorf("%w: no signature with the secret of the endpoint", ErrWebhook)
	}
	if age := w.Now().Sub(time.Unix(seconds, 0)); age > WebhookTolerance || age < -WebhookTolerance {
		return WebhookEvent{}, fmt.Errorf("%w: it was sent more than 5 minutes ago, or the clock is wrong", ErrWebhook)
	}
	e := WebhookEvent{ID: id}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // in the answers of a submission
	if err := decoder.Decode(&e); err != nil {
		return WebhookEvent{}, fmt.Errorf("%w: the body is not JSON", ErrWebhook)
	}
	return e, nil
}

// signed reports whether any of the space-separated signatures is a valid signature of the content with any of the
// keys.
func (w *WebhookVerifier) signed(signatures, prefix string, body []byte) bool {
	for _, key := range w.keys {
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
