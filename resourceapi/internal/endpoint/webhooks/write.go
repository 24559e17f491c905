package webhooks

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/records"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

const maxBody = 16 << 10

type effect = records.Effect[delivery.Writer]

// added is the response of Create, the only response with the secret.
type added struct {
	record
	Secret string `json:"secret"`
}

// Create handles POST: 201 with the new endpoint and its secret.
func (e *Endpoint) Create() http.Handler { return e.write(e.decodeCreate, e.onceSealed) }

// Change handles PATCH of one endpoint, which enables or disables it, or omits personal data: 200.
func (e *Endpoint) Change() http.Handler { return e.write(e.decodeChange, e.Store.Once) }

// Delete handles DELETE of one endpoint: 204.
func (e *Endpoint) Delete() http.Handler { return e.write(decodeDelete, e.Store.Once) }

// once is Store.Once.
type once = func(
	ctx context.Context,
	key idempotency.Key,
	effect func(context.Context, delivery.Writer) (idempotency.Answer, error),
) (idempotency.Answer, error)

func (e *Endpoint) write(decode records.Decoder[delivery.Writer], once once) http.Handler {
	return records.Writes[delivery.Writer]{
		Gate:     e.Gate,
		Need:     perm.AccountAPIAccess,
		Once:     once,
		Refusals: refusals,
	}.Handler(records.UpTo(maxBody), decode)
}

// onceSealed is like Store.Once, but seals the stored answer, which contains a secret.
func (e *Endpoint) onceSealed(
	ctx context.Context,
	key idempotency.Key,
	effect func(context.Context, delivery.Writer) (idempotency.Answer, error),
) (idempotency.Answer, error) {
	answer, err := e.Store.Once(ctx, key, func(ctx context.Context, w delivery.Writer) (idempotency.Answer, error) {
		answer, err := effect(ctx, w)
		answer.Body, answer.Secret = e.Answers.SealBytes(answer.Body), true
		return answer, err
	})
	if err != nil {
		return idempotency.Answer{}, err
	}
	answer.Body, err = e.Answers.OpenBytes(answer.Body)
	return answer, err
}

func (e *Endpoint) decodeCreate(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := strictjson.ReadBody(r.Header, content, "application/json")
	if err != nil {
		return nil, err
	}
	wish, types, err := readTypes(object, caller)
	if err != nil {
		return nil, err
	}
	optionalFlag(object, "includePersonalData", wish)
	address, _ := object.Text("url")
	if message := webhook.CheckURL(r.Context(), e.Network, address); message != "" {
		wish["url"] = message
	}
	if err := wish.OrNil(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
		secret, err := webhook.NewSecret(rand.Reader)
		if err != nil {
			return idempotency.Answer{}, err
		}
		made := webhook.Endpoint{
			ID:          identity.New(),
			WorkspaceID: caller.WorkspaceID,
			Maker:       makerOf(caller),
			URL:         address,
			Types:       types,
		}
		sealed, err := webhook.Seal(e.Keys.Public(), made.ID, secret)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if made, err = writer.Add(ctx, made, sealed); err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := answerWith(http.StatusCreated, added{recordOf(made), secret.Reveal()})
		answer.Needs = eventtype.Needs(types)
		answer.Location = e.BaseURL + Path + "/" + made.ID.String()
		return answer, err
	}, nil
}

// readTypes reads the member types. It checks the permissions for the types before it reports invalid fields (contract,
// section 6).
func readTypes(object strictjson.Object, caller gate.Caller) (invalid.Fields, []string, error) {
	problems := invalid.Fields(strictjson.UnknownMembers(object, "url", "types", "includePersonalData"))
	var types []string
	if err := json.Unmarshal(object["types"], &types); err != nil || !strings.HasPrefix(string(object["types"]), "[") {
		problems["types"] = "Must be a list of types of events."
		return problems, nil, nil
	}
	if err := cmp.Or(needsOf(caller, types...), refusePersonalData(object)); err != nil {
		return nil, nil, err
	}
	if message := webhook.CheckTypes(types); message != "" {
		problems["types"] = message
	}
	return problems, types, nil
}

// makerOf returns the caller as the maker of an endpoint.
func makerOf(caller gate.Caller) webhook.Maker {
	if caller.Kind == standing.PersonalAccessToken {
		return webhook.Maker{UserID: caller.User, TokenID: &caller.Credential}
	}
	return webhook.Maker{UserID: caller.User, GrantID: &caller.Credential}
}

// refusePersonalData refuses to include personal data, which is decided on the page (contract, section 6a).
func refusePersonalData(object strictjson.Object) error {
	if string(object["includePersonalData"]) != "true" {
		return nil
	}
	return apierr.New(
		apierr.Forbidden,
		"Personal data cannot be included with a credential. Include it in Settings, Developers, Webhooks, after "+
			"confirming your identity.",
	)
}

// needsOf returns an error if the caller may not read events of the types.
func needsOf(caller gate.Caller, types ...string) error {
	missing := eventtype.Needs(types).Without(caller.Permissions)
	if len(missing) == 0 {
		return nil
	}
	return apierr.New(
		apierr.Forbidden,
		"These types of events need the permission "+strings.Join(missing.Strings(), ", ")+
			", of the user and of the credential.",
	)
}

func (e *Endpoint) decodeChange(r *http.Request, caller gate.Caller, content []byte) (effect, error) {
	object, err := strictjson.ReadBody(r.Header, content, "application/json")
	if err != nil {
		return nil, err
	}
	if err := refusePersonalData(object); err != nil {
		return nil, err
	}
	problems := invalid.Fields(strictjson.UnknownMembers(object, "enabled", "includePersonalData"))
	enable := optionalFlag(object, "enabled", problems)
	include := optionalFlag(object, "includePersonalData", problems)
	if enable == nil && include == nil && len(problems) == 0 {
		problems["enabled"] = "Must be true or false, unless includePersonalData is given."
	}
	id, notFound := records.PathID(r, webhook.ErrNotFound)
	if err := cmp.Or(problems.OrNil(), notFound); err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
		var made webhook.Endpoint
		var err error
		if enable != nil {
			made, err = setEnabled(ctx, writer, caller, id, *enable)
		}
		if err == nil && include != nil {
			made, err = writer.OmitPersonalData(ctx, caller.WorkspaceID, id, caller.User)
		}
		answer, err := changed(made, err)
		if (enable != nil && *enable) || (include != nil && *include) {
			answer.Needs = eventtype.Needs(made.Types)
		}
		return answer, err
	}, nil
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
		err = needsOf(caller, made.Types...)
	}
	return made, err
}

// optionalFlag returns the member with this name, or nil if it is missing. It adds to problems if it is not a boolean.
func optionalFlag(object strictjson.Object, name string, problems invalid.Fields) *bool {
	switch string(object[name]) {
	case "":
		return nil
	case "true", "false":
		return new(string(object[name]) == "true")
	}
	problems[name] = "Must be true or false."
	return nil
}

func changed(e webhook.Endpoint, err error) (idempotency.Answer, error) {
	if err != nil {
		return idempotency.Answer{}, err
	}
	return answerWith(http.StatusOK, recordOf(e))
}

func decodeDelete(r *http.Request, caller gate.Caller, _ []byte) (effect, error) {
	id, err := records.PathID(r, webhook.ErrNotFound)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, writer delivery.Writer) (idempotency.Answer, error) {
		err := writer.Delete(ctx, caller.WorkspaceID, id, caller.User)
		return idempotency.Answer{Status: http.StatusNoContent}, err
	}, nil
}

func answerWith(status int, body any) (idempotency.Answer, error) {
	content, err := web.EncodeJSON(body)
	return idempotency.Answer{Status: status, Body: content}, err
}
