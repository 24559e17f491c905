package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// Timeout is the maximum duration of an attempt, from name resolution to the header of the response.
const Timeout = 10 * time.Second

// A message is the content of a delivery.
type message struct {
	id   string // the same at each attempt (W2)
	body []byte
}

// payload is the body of a message. It names the record that changed and does not contain its values, except personal
// data that the user of the endpoint asked for.
type payload struct {
	Type        string          `json:"type"`
	Timestamp   rest.Time       `json:"timestamp"`
	Data        json.RawMessage `json:"data"`
	WorkspaceID uuid.UUID       `json:"workspaceId"`
	Sequence    int64           `json:"sequence,omitempty"`
}

func messageOf(workspaceID uuid.UUID, e Event) (message, error) {
	body, err := web.EncodeJSON(payload{
		Type:        e.Type,
		Timestamp:   e.At,
		Data:        e.Data,
		WorkspaceID: workspaceID,
		Sequence:    e.Sequence,
	})
	return message{"evt_" + workspaceID.String() + "_" + strconv.FormatInt(e.Sequence, 10), body}, err
}

// testMessage returns the message of a test event, which has no sequence.
func testMessage(e webhook.Endpoint, d webhook.Delivery) (message, error) {
	data, err := json.Marshal(map[string]uuid.UUID{"id": e.ID})
	if err != nil {
		return message{}, err
	}
	body, err := web.EncodeJSON(payload{
		Type:        webhook.TestType,
		Timestamp:   rest.Time(d.CreatedAt),
		Data:        data,
		WorkspaceID: e.WorkspaceID,
	})
	return message{"test_" + d.ID.String(), body}, err
}

// An Attempt is the result of one request to an endpoint.
type Attempt struct {
	Status  int    // of the response; 0 if there was none
	Problem string // message for the user that says why it was not accepted, or ""
	Outcome Outcome
	Took    time.Duration
	// RetryAfter is how long the endpoint asked to wait, up to longestWait; 0 if it did not ask (W6).
	RetryAfter time.Duration
}

// An Outcome is the label of an attempt in metrics.
type Outcome string

// The outcomes.
const (
	Accepted    Outcome = "accepted"
	Refused     Outcome = "refused"     // the status was not 2xx
	Unreachable Outcome = "unreachable" // there was no response
	NotPublic   Outcome = "not_public"  // W4
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Accepted, Refused, Unreachable, NotPublic} }

// A sender posts messages.
type sender struct {
	client *http.Client
	now    func() time.Time
}

func newSender(network *publicnet.Network, now func() time.Time) *sender {
	return &sender{now: now, client: &http.Client{
		Timeout:       Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     network.Transport(),
	}}
}

// sign returns a signature by each secret (Standard Webhooks).
func sign(secrets []credential.Secret, m message, at time.Time) (string, error) {
	var signatures []string
	for _, secret := range secrets {
		signer, err := standardwebhooks.NewWebhook(secret.Reveal())
		if err != nil {
			return "", errors.New("the secret of the webhook endpoint is not valid")
		}
		signature, err := signer.Sign(m.id, at, m.body)
		if err != nil {
			return "", errors.New("the webhook cannot be signed")
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}

// send posts the message with a signature by each secret. It does not read the body of the response.
func (s *sender) send(ctx context.Context, address string, secrets []credential.Secret, m message) (Attempt, error) {
	began := s.now()
	signature, err := sign(secrets, m, began)
	if err != nil {
		return Attempt{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(m.body))
	if err != nil {
		return Attempt{Problem: "The URL is not valid.", Outcome: Unreachable}, nil
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Almoner")
	request.Header.Set(standardwebhooks.HeaderWebhookID, m.id)
	request.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(began.Unix(), 10))
	request.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	response, err := s.client.Do(request)
	took := s.now().Sub(began)
	if err != nil {
		if ctx.Err() != nil {
			return Attempt{}, context.Cause(ctx) // the process is stopping, so this is not a failure of the endpoint
		}
		attempt := errorAttempt(err)
		attempt.Took = took
		return attempt, nil
	}
	_ = response.Body.Close()
	attempt := statusAttempt(response.StatusCode)
	attempt.Took = took
	attempt.RetryAfter = retryAfter(response.Header.Get("Retry-After"), s.now())
	return attempt, nil
}

// retryAfter returns how long the header Retry-After asks to wait: a number of seconds, or until a date (RFC 9110,
// section 10.2.3). It returns 0 if the header is missing or malformed.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), longestWait)
}

func statusAttempt(status int) Attempt {
	switch {
	case status >= 200 && status < 300:
		return Attempt{Status: status, Outcome: Accepted}
	case status >= 300 && status < 400:
		return Attempt{
			Status:  status,
			Problem: fmt.Sprintf("The endpoint answered with status %d. Redirects are not followed.", status),
			Outcome: Refused,
		}
	}
	return Attempt{
		Status:  status,
		Problem: fmt.Sprintf("The endpoint answered with status %d.", status),
		Outcome: Refused,
	}
}

// errorAttempt returns the attempt for an error of the HTTP client. It omits the text of the error, which quotes the
// URL (W7).
func errorAttempt(err error) Attempt {
	a := Attempt{Outcome: Unreachable, Problem: "The connection failed."}
	var timeout interface{ Timeout() bool }
	if errors.Is(err, publicnet.ErrProhibited) {
		return Attempt{Outcome: NotPublic, Problem: "The host has no public address."}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		a.Problem = "The host name could not be resolved."
		return a
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		a.Problem = "The certificate of the host is not valid."
		return a
	}
	if errors.As(err, &timeout) && timeout.Timeout() {
		a.Problem = "The endpoint did not answer within 10 seconds."
	}
	return a
}

// PersonalData is the current record that an event is about, of events of submissions and members. Its fields are nil
// if the record is no longer stored.
type PersonalData struct {
	Submission *engage.SubmissionRecord `json:"submission,omitempty"`
	Supporter  *engage.StoredSupporter  `json:"supporter,omitempty"` // of the submission, once it was processed
	Member     *Member                  `json:"member,omitempty"`
}

// A Member is a user of the workspace.
type Member struct {
	UserID uuid.UUID `json:"userId"`
	Name   string    `json:"name"`
	Email  string    `json:"email"`
}

// withPersonalData adds the personal data to the data of an event, if the user of the endpoint asked for it (W8). The
// caller has checked that the user may read the event.
func (d *Deliverer) withPersonalData(ctx context.Context, t Target, e Event) (Event, error) {
	if !t.PersonalData {
		return e, nil
	}
	personal, err := d.Store.PersonalData(ctx, t.WorkspaceID, e)
	if err != nil {
		return Event{}, err
	}
	added, err := json.Marshal(personal)
	if err != nil {
		return Event{}, fmt.Errorf("encode the personal data of an event: %w", err)
	}
	data := map[string]json.RawMessage{}
	for _, part := range []json.RawMessage{e.Data, added} {
		if err := json.Unmarshal(part, &data); err != nil {
			return Event{}, fmt.Errorf("add personal data to an event: %w", err)
		}
	}
	e.Data, err = json.Marshal(data)
	if err != nil {
		return Event{}, fmt.Errorf("encode the data of an event: %w", err)
	}
	return e, nil
}
