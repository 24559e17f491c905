package webhooks

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// ReplaceSecret handles POST …/secret: 200 with the endpoint and its new secret. Events are signed with both secrets
// for 24 hours, unless expireOld is true.
func (e *Endpoint) ReplaceSecret() http.Handler { return e.write(e.decodeReplaceSecret, e.onceSealed) }

func (e *Endpoint) decodeReplaceSecret(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	id, err := records.PathID(r, webhook.ErrNotFound)
	if err != nil {
		return nil, err
	}
	overlap, err := readOverlap(r.Header, content)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
		secret, err := webhook.NewSecret(rand.Reader)
		if err != nil {
			return idempotency.Answer{}, err
		}
		sealed, err := webhook.Seal(e.Keys.Public(), id, secret)
		if err != nil {
			return idempotency.Answer{}, err
		}
		changed, err := writer.ReplaceSecret(ctx, caller.WorkspaceID, id, caller.User, sealed, overlap)
		if err == nil {
			err = needsOf(caller, changed.Types...) // the secret signs these events
		}
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := answerWith(http.StatusOK, added{recordOf(changed), secret.Reveal()})
		answer.Needs = eventtype.Needs(changed.Types)
		return answer, err
	}, nil
}

// readOverlap reads the optional body, which may have expireOld.
func readOverlap(h http.Header, content []byte) (time.Duration, error) {
	if len(content) == 0 {
		return webhook.SecretOverlap, nil
	}
	object, err := strictjson.ReadBody(h, content, "application/json")
	if err != nil {
		return 0, err
	}
	problems := invalid.Fields(strictjson.UnknownMembers(object, "expireOld"))
	overlap := webhook.SecretOverlap
	if expire := optionalFlag(object, "expireOld", problems); expire != nil && *expire {
		overlap = 0
	}
	return overlap, problems.OrNil()
}
