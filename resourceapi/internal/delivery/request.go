package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/publicnet"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// Timeout is the maximum duration of an attempt, from name resolution to the header of the response. The connection is
// closed if the body does not follow within bodyWait.
const Timeout, bodyWait = 10 * time.Second, 250 * time.Millisecond

// A message is the content of a delivery.
type message struct {
	id       string // the same at each attempt (W2)
	body     []byte
	personal bool // it has personal data
	private  bool // its endpoint gets personal data: no response is kept, which may repeat it (W8)
}

// An Attempt is the result of one request to an endpoint.
type Attempt struct {
	Status  int    // of the response; 0 if there was none
	Problem string // message for the user that says why it was not accepted, or ""
	Outcome Outcome
	Took    time.Duration
	// RetryAfter is how long the endpoint asked to wait, up to longestWait; 0 if it did not ask (W6).
	RetryAfter time.Duration

	SentAt    *time.Time // as the request says; nil if none was sent
	Signature string     // of the request
	Personal  bool       // the request had personal data
	Response  []byte     // the first bytes of the body of the response; nil if the endpoint gets personal data (W8)
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

// maxBody is the length of a response that is read, in bytes. A connection with a longer one is closed.
const maxBody = 4096

// post posts the message with a signature by each secret.
func (d *Deliverer) post(ctx context.Context, address string, secrets []credential.Secret, m message) (Attempt, error) {
	began := d.Now()
	signature, err := sign(secrets, m, began)
	if err != nil {
		return Attempt{}, err
	}
	exchange, end := context.WithCancel(ctx)
	defer end()
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(exchange, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	request, err := http.NewRequestWithContext(traced, http.MethodPost, address, bytes.NewReader(m.body))
	if err != nil {
		return Attempt{Problem: "The URL is not valid.", Outcome: Unreachable}, nil
	}
	for _, one := range webhook.Headers(m.id, began, signature) {
		request.Header.Set(one.Name, one.Value)
	}
	request.Header["Idempotency-Key"] = nil // not sent: makes net/http repeat what a closed connection did not get
	response, err := d.client.Do(request)
	a := Attempt{Outcome: Accepted, Took: d.Now().Sub(began), Personal: m.personal}
	if sent.Load() {
		a.SentAt, a.Signature = &began, signature
	}
	if err != nil && ctx.Err() != nil {
		return Attempt{}, context.Cause(ctx) // the process is stopping, so this is not a failure of the endpoint
	}
	if err != nil {
		a.Problem, a.Outcome = problemOf(err)
		return a, nil
	}
	defer func() { _ = response.Body.Close() }()
	time.AfterFunc(bodyWait, end)
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // what comes in time; the status decides
	if !m.private {
		a.Response = body[:min(len(body), webhook.MaxResponse)]
	}
	a.Status, a.RetryAfter = response.StatusCode, retryAfter(response.Header.Get("Retry-After"), d.Now())
	if a.Status < 200 || a.Status >= 300 {
		a.Outcome, a.Problem = Refused, fmt.Sprintf("The endpoint answered with status %d.", a.Status)
	}
	if a.Status >= 300 && a.Status < 400 {
		a.Problem += " Redirects are not followed."
	}
	return a, nil
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

// problemOf returns the problem and the outcome of an error of the HTTP client. It omits the text of the error, which
// quotes the URL (W7).
func problemOf(err error) (problem string, outcome Outcome) {
	var timeout interface{ Timeout() bool }
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, publicnet.ErrProhibited):
		return "The host has no public address.", NotPublic
	case unresolved:
		return "The host name could not be resolved.", Unreachable
	case untrusted:
		return "The certificate of the host is not valid.", Unreachable
	case errors.As(err, &timeout) && timeout.Timeout():
		return "The endpoint did not answer within 10 seconds.", Unreachable
	}
	return "The connection failed.", Unreachable
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

// addTo adds the personal data to the data of an event.
func (p PersonalData) addTo(data json.RawMessage) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	added, err := json.Marshal(p)
	for _, part := range []json.RawMessage{data, added} {
		if err == nil {
			err = json.Unmarshal(part, &all)
		}
	}
	if err == nil {
		data, err = json.Marshal(all)
	}
	if err != nil {
		return nil, fmt.Errorf("add personal data to an event: %w", err)
	}
	return data, nil
}
