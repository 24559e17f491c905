package webhooks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

const maxBody = 16 << 10

type effect = rest.Effect[delivery.Writer]

// added is the response with the secret of an endpoint.
type added struct {
	record
	Secret string `json:"secret"`
}

type once = func(context.Context, rest.Key, rest.Effect[delivery.Writer]) (rest.Answer, error)

func (e *Endpoint) write(decode gate.Decoder[delivery.Writer], once once) http.Handler {
	return gate.Writes[delivery.Writer]{Module: e.module(), Need: perm.AccountAPIAccess, Once: once}.
		Handler(gate.UpTo(maxBody), decode)
}

// onceSealed is like Store.Once, but seals the stored answer, which contains a secret.
func (e *Endpoint) onceSealed(ctx context.Context, key rest.Key, effect effect) (rest.Answer, error) {
	answer, err := e.Store.Once(ctx, key, func(ctx context.Context, w delivery.Writer) (rest.Answer, error) {
		answer, err := effect(ctx, w)
		answer.Body, answer.Secret = e.Answers.SealBytes(answer.Body), true
		return answer, err
	})
	if err != nil {
		return rest.Answer{}, err
	}
	answer.Body, err = e.Answers.OpenBytes(answer.Body)
	return answer, err
}

// newSecret returns a new secret for the endpoint, and the secret sealed.
func (e *Endpoint) newSecret(id uuid.UUID) (credential.Secret, webhook.Sealed, error) {
	secret, err := webhook.NewSecret(rand.Reader)
	if err != nil {
		return "", webhook.Sealed{}, err
	}
	sealed, err := webhook.Seal(e.Keys.Public(), id, secret)
	return secret, sealed, err
}

// decodeCreate parses POST: 201 with the new endpoint and its secret.
func (e *Endpoint) decodeCreate(r *gate.WriteRequest) effect {
	object := r.Object("application/json")
	types, problems := readTypes(r, object)
	if r.Refused() { // before the name of the host is resolved
		return nil
	}
	object.Flag("includePersonalData", problems)
	address, _ := object.Text("url")
	if message := webhook.CheckURL(r.Context(), e.Network, address); message != "" {
		problems["url"] = message
	}
	r.Refuse(problems.OrNil())
	return func(ctx context.Context, writer delivery.Writer) (rest.Answer, error) {
		made := webhook.Endpoint{
			ID:          uuid.Must(uuid.NewV7()),
			WorkspaceID: r.WorkspaceID,
			Maker:       makerOf(r.Caller),
			URL:         address,
			Types:       types,
		}
		secret, sealed, err := e.newSecret(made.ID)
		if err != nil {
			return rest.Answer{}, err
		}
		made, err = writer.Add(ctx, made, sealed)
		answer, err := rest.JSON(http.StatusCreated, added{recordOf(made), secret.Reveal()}, err)
		answer.Needs = webhook.Needs(types)
		answer.Location = e.BaseURL + Path + "/" + made.ID.String()
		return answer, err
	}
}

// readTypes reads the member types. It checks the permissions for the types before invalid fields are reported
// (contract, section 6).
func readTypes(r *gate.WriteRequest, object rest.Object) ([]string, rest.Problems) {
	problems := rest.UnknownMembers(object, "url", "types", "includePersonalData")
	var types []string
	if err := json.Unmarshal(object["types"], &types); err != nil || !strings.HasPrefix(string(object["types"]), "[") {
		problems["types"] = "Must be a list of types of events."
		return nil, problems
	}
	r.Refuse(needsOf(r.Caller, types...))
	r.Refuse(refusePersonalData(object))
	if message := webhook.CheckTypes(types); message != "" {
		problems["types"] = message
	}
	return types, problems
}

// makerOf returns the caller as the maker of an endpoint.
func makerOf(caller gate.Caller) webhook.Maker {
	if caller.Kind == standing.PersonalAccessToken {
		return webhook.Maker{UserID: caller.User, TokenID: &caller.Credential}
	}
	return webhook.Maker{UserID: caller.User, GrantID: &caller.Credential}
}

// refusePersonalData refuses to include personal data, which is decided on the page (contract, section 6a).
func refusePersonalData(object rest.Object) error {
	if string(object["includePersonalData"]) != "true" {
		return nil
	}
	return apierr.New(apierr.Forbidden,
		"Personal data cannot be included with a credential. Include it in Settings, Developers, Webhooks, after "+
			"confirming your identity.")
}

// needsOf returns an error if the caller may not read events of the types.
func needsOf(caller gate.Caller, types ...string) error {
	missing := webhook.Needs(types).Without(caller.Permissions)
	if len(missing) == 0 {
		return nil
	}
	return apierr.New(apierr.Forbidden,
		"These types of events need the permission "+strings.Join(missing.Strings(), ", ")+
			", of the user and of the credential.")
}

// decodeChange parses PATCH of one endpoint, which enables or disables it, or omits personal data: 200.
func (e *Endpoint) decodeChange(r *gate.WriteRequest) effect {
	object := r.Object("application/json")
	r.Refuse(refusePersonalData(object))
	problems := rest.UnknownMembers(object, "enabled", "includePersonalData")
	enable := object.Flag("enabled", problems)
	include := object.Flag("includePersonalData", problems)
	if enable == nil && include == nil && len(problems) == 0 {
		problems["enabled"] = "Must be true or false, unless includePersonalData is given."
	}
	r.Refuse(problems.OrNil())
	id := r.ID(webhook.ErrNotFound)
	return func(ctx context.Context, writer delivery.Writer) (rest.Answer, error) {
		var made webhook.Endpoint
		var err error
		if enable != nil {
			made, err = setEnabled(ctx, writer, r.Caller, id, *enable)
		}
		if err == nil && include != nil {
			made, err = writer.OmitPersonalData(ctx, r.WorkspaceID, id, r.User)
		}
		answer, err := rest.JSON(http.StatusOK, recordOf(made), err)
		if (enable != nil && *enable) || (include != nil && *include) {
			answer.Needs = webhook.Needs(made.Wanted())
		}
		return answer, err
	}
}

// setEnabled enables or disables an endpoint. To enable it, the caller must be permitted to read its events.
func setEnabled(
	ctx context.Context, writer delivery.Writer, caller gate.Caller, id uuid.UUID, enable bool,
) (webhook.Endpoint, error) {
	if !enable {
		return writer.Disable(ctx, caller.WorkspaceID, id, caller.User)
	}
	made, err := writer.Enable(ctx, caller.WorkspaceID, id, makerOf(caller))
	if err == nil {
		err = needsOf(caller, made.Wanted()...)
	}
	return made, err
}

// decodeReplaceSecret parses POST …/secret: 200 with the endpoint and its new secret. Events are signed with both
// secrets for 24 hours, unless expireOld is true.
func (e *Endpoint) decodeReplaceSecret(r *gate.WriteRequest) effect {
	id := r.ID(webhook.ErrNotFound)
	overlap := webhook.SecretOverlap
	if len(r.Content) > 0 { // the body is optional
		object := r.Object("application/json")
		problems := rest.UnknownMembers(object, "expireOld")
		if expire := object.Flag("expireOld", problems); expire != nil && *expire {
			overlap = 0
		}
		r.Refuse(problems.OrNil())
	}
	return func(ctx context.Context, writer delivery.Writer) (rest.Answer, error) {
		secret, sealed, err := e.newSecret(id)
		if err != nil {
			return rest.Answer{}, err
		}
		changed, err := writer.ReplaceSecret(ctx, r.WorkspaceID, id, r.User, sealed, overlap)
		if err == nil {
			err = needsOf(r.Caller, changed.Wanted()...) // the secret signs these events
		}
		answer, err := rest.JSON(http.StatusOK, added{recordOf(changed), secret.Reveal()}, err)
		answer.Needs = webhook.Needs(changed.Wanted())
		return answer, err
	}
}

// decodeTest parses POST …/test, which sends a test event soon: 202 with the delivery.
func decodeTest(r *gate.WriteRequest) effect {
	id := r.ID(webhook.ErrNotFound)
	return func(ctx context.Context, writer delivery.Writer) (rest.Answer, error) {
		d, err := writer.Test(ctx, r.WorkspaceID, id)
		return rest.JSON(http.StatusAccepted, deliveryRecordOf(r.Caller, d), err)
	}
}

// decodeResend parses POST …/deliveries/{delivery}/resend, which sends the event of an earlier delivery again: 202 with
// the new delivery.
func decodeResend(r *gate.WriteRequest) effect {
	id := r.ID(webhook.ErrNotFound)
	former, err := web.ParseID(r.PathValue("delivery"))
	if err != nil {
		r.Refuse(webhook.ErrNotFound)
	}
	need := func(eventType string) error { return needsOf(r.Caller, eventType) }
	return func(ctx context.Context, writer delivery.Writer) (rest.Answer, error) {
		d, err := writer.Resend(ctx, r.WorkspaceID, id, former, need)
		answer, err := rest.JSON(http.StatusAccepted, deliveryRecordOf(r.Caller, d), err)
		answer.Needs = webhook.Needs([]string{d.Type})
		return answer, err
	}
}
