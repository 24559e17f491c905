package client_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/client"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The secret, message and signature are those of the specification of Standard Webhooks.
const (
	webhookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhookID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	webhookSent      = 1614265330
	webhookBody      = `{"test": 2432232314}`
	webhookSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func webhookHeader(id string, sent int64, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(sent, 10))
	h.Set("webhook-signature", signature)
	return h
}

func TestWebhookVerifier(t *testing.T) {
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	v, err := client.NewWebhookVerifier(other, webhookSecret)
	must(t, err)
	foreign, err := client.NewWebhookVerifier(other)
	must(t, err)
	good := webhookHeader(webhookID, webhookSent, webhookSignature)
	for name, c := range map[string]struct {
		verifier *client.WebhookVerifier
		header   http.Header
		body     string
		late     time.Duration
		accepted bool
	}{
		"good":            {v, good, webhookBody, 0, true},
		"five minutes":    {v, good, webhookBody, 5 * time.Minute, true},
		"five minutes to": {v, good, webhookBody, -5 * time.Minute, true},
		"several": {
			v, webhookHeader(webhookID, webhookSent, "v1a,xxx v1,AAAA "+webhookSignature), webhookBody, 0, true,
		},
		"old":             {v, good, webhookBody, 5*time.Minute + time.Second, false},
		"new":             {v, good, webhookBody, -5*time.Minute - time.Second, false},
		"another secret":  {foreign, good, webhookBody, 0, false},
		"another body":    {v, good, webhookBody + " ", 0, false},
		"another id":      {v, webhookHeader("msg_x", webhookSent, webhookSignature), webhookBody, 0, false},
		"another time":    {v, webhookHeader(webhookID, webhookSent+1, webhookSignature), webhookBody, 0, false},
		"another version": {v, webhookHeader(webhookID, webhookSent, "v2"+webhookSignature[2:]), webhookBody, 0, false},
		"cut":             {v, webhookHeader(webhookID, webhookSent, webhookSignature[:20]), webhookBody, 0, false},
		"no signature":    {v, webhookHeader(webhookID, webhookSent, ""), webhookBody, 0, false},
		"no id":           {v, webhookHeader("", webhookSent, webhookSignature), webhookBody, 0, false},
		"nothing":         {v, http.Header{}, webhookBody, 0, false},
	} {
		c.verifier.Now = func() time.Time { return time.Unix(webhookSent, 0).Add(c.late) }
		e, err := c.verifier.Verify(c.header, []byte(c.body))
		if c.accepted != (err == nil) || (err != nil && !errors.Is(err, client.ErrWebhook)) ||
			(c.accepted && e.ID != webhookID) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if err != nil && strings.Contains(err.Error(), "whsec_") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, secret := range []client.Secret{"", "whsec_", "whsec_AAAA", "whsec_!", client.Secret(webhookSecret[6:])} {
		if _, err := client.NewWebhookVerifier(secret); err == nil {
			t.Errorf("%q is accepted as a secret", secret.Reveal())
		}
	}
}
