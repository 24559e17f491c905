package forms

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

const (
	maxBody  = 64 << 10
	maxEmail = 254 // length in bytes above which a text is no e-mail address (RFC 5321)
)

type effect = rest.Effect[engage.Writer]

func (e *Endpoint) write(need perm.Permission, decode gate.Decoder[engage.Writer]) http.Handler {
	return gate.Writes[engage.Writer]{Module: e.module(), Need: need, Once: e.Store.Once}.
		Handler(gate.UpTo(maxBody), decode)
}

// decodeCreate parses POST: 201 with the new form.
func (e *Endpoint) decodeCreate(r *gate.WriteRequest) effect {
	form, err := readForm(r.Object("application/json"))
	r.Refuse(err)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		embedKey, err := credential.EmbedKey.New(rand.Reader)
		if err != nil {
			return rest.Answer{}, err
		}
		made := form
		made.ID, made.WorkspaceID, made.EmbedKey = uuid.Must(uuid.NewV7()), r.WorkspaceID, embedKey.Reveal()
		made, err = writer.CreateForm(ctx, made, r.User)
		answer, err := answerWith(http.StatusCreated, made, err)
		answer.Location = e.BaseURL + Path + "/" + made.ID.String()
		return answer, err
	}
}

// decodeChange parses PATCH of one form: 200, or 412 if If-Match names another version.
func decodeChange(r *gate.WriteRequest) effect {
	change, err := readChange(r.Object("application/json", "application/merge-patch+json"))
	r.Refuse(err)
	if change.RetentionMonths != nil && !r.Permissions.Has(perm.EngageWriteSubmissions) {
		r.Refuse(apierr.New(apierr.Forbidden, "Changing retentionMonths deletes submissions earlier or later, "+
			"which requires the permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential."))
	}
	conditions := r.Conditions()
	id := r.ID(engage.ErrNotFound)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		form, err := writer.ReplaceForm(ctx, r.WorkspaceID, id, func(f engage.Form) (engage.Form, error) {
			return change.Apply(f), conditions.CheckChange(f.Version)
		})
		return answerWith(http.StatusOK, form, err)
	}
}

func answerWith(status int, f engage.Form, err error) (rest.Answer, error) {
	answer, err := rest.JSON(status, f, err)
	answer.ETag = rest.Tag(f.Version)
	return answer, err
}

// decodeDelete parses DELETE of a form with its submissions: 200 with their number, or 202 if a worker erases them.
func (e *Endpoint) decodeDelete(r *gate.WriteRequest) effect {
	if !r.Permissions.Has(perm.EngageWriteSubmissions) {
		r.Refuse(apierr.New(apierr.Forbidden, "Deleting a form deletes its submissions, which requires the "+
			"permission "+string(perm.EngageWriteSubmissions)+" of the user and of the credential."))
	}
	id := r.ID(engage.ErrNotFound)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		return e.erased(writer.EraseForm(ctx, r.WorkspaceID, id, r.User))
	}
}

// decodeDeleteSupporter parses DELETE of a supporter with all that they sent: 200 with the number of submissions, or
// 202.
func (e *Endpoint) decodeDeleteSupporter(r *gate.WriteRequest) effect {
	id := r.ID(engage.ErrNoSupporter)
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		return e.erased(writer.EraseSupporter(ctx, r.WorkspaceID, id, r.User))
	}
}

// decodeErase parses POST …/erase, which erases the supporter with an e-mail address: 200 with the number of
// submissions, 0 if the address is unknown, or 202.
func (e *Endpoint) decodeErase(r *gate.WriteRequest) effect {
	object := r.Object("application/json")
	problems := rest.UnknownMembers(object, "email")
	email, _ := object.Text("email")
	email = spelling.Key(email)
	if !strings.Contains(email, "@") || len(email) > maxEmail || strings.ContainsRune(email, 0) {
		problems["email"] = "Must be an e-mail address."
	}
	r.Refuse(problems.OrNil())
	return func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		erasure, err := writer.EraseAddress(ctx, r.WorkspaceID, email, r.User)
		if erasure.Status != engage.Accepted && erasure.Deleted == 0 {
			web.AddRecords(ctx, 0) // the address is unknown
		}
		return e.erased(erasure, err)
	}
}

// erased returns the answer to an erasure. If a worker does it, statusUrl returns its status (contract, section 6a).
func (e *Endpoint) erased(erasure engage.Erasure, err error) (rest.Answer, error) {
	if erasure.Status != engage.Accepted {
		return rest.JSON(http.StatusOK, map[string]int{"deletedSubmissions": erasure.Deleted}, err)
	}
	at := e.BaseURL + ErasuresPath + "/" + erasure.ID.String()
	accepted := map[string]any{"id": erasure.ID, "status": erasure.Status, "statusUrl": at}
	answer, err := rest.JSON(http.StatusAccepted, accepted, err)
	answer.Location = at
	return answer, err
}

// formMembers are the members of a form in a request.
var formMembers = []string{
	"title", "introduction", "thankYou", "lang", "fields", "allowedOrigins", "enabled", "retentionMonths",
}

// ReadForm reads the definition of a form in JSON. It applies the rules of POST. The error is an *apierr.Error or
// rest.Problems.
func ReadForm(content []byte) (engage.Form, error) {
	object, err := rest.ParseObject(content)
	if err != nil {
		return engage.Form{}, err
	}
	return readForm(object)
}

// Messages about members that have the wrong type.
const (
	notText    = "Must be a string."
	notOrigins = "Must be an array of strings. If the array is empty, other websites cannot use the form."
)

// readForm reads the body of POST. enabled defaults to true, lang to engage.DefaultLanguage, retentionMonths to 24, and
// introduction and thankYou to "". The error is a rest.Problems.
func readForm(object rest.Object) (engage.Form, error) {
	problems := rest.UnknownMembers(object, formMembers...)
	form := readMembers(object, problems).Apply(engage.Form{
		Lang:            engage.DefaultLanguage,
		AllowedOrigins:  []string{},
		Enabled:         true,
		RetentionMonths: engage.DefaultRetentionMonths,
	})
	for name, message := range map[string]string{"title": notText, "allowedOrigins": notOrigins} {
		if !object.Has(name) {
			problems[name] = message
		}
	}
	var elements []json.RawMessage
	if object.Null("fields") || json.Unmarshal(object["fields"], &elements) != nil {
		problems["fields"] = "Must be an array of fields."
		return form, problems
	}
	if len(elements) > engage.MaxFields {
		elements = elements[:engage.MaxFields+1] // one more than allowed, so that Check reports too many
	}
	for i, element := range elements {
		form.Fields = append(form.Fields, readField(fmt.Sprintf("fields[%d]", i), element, problems))
	}
	return form, problems.Join(form.Check())
}

// readMembers reads the members other than fields. Omitted ones are nil.
func readMembers(object rest.Object, problems rest.Problems) engage.Change {
	change := engage.Change{
		Title:        readText(object, "title", problems),
		Introduction: readText(object, "introduction", problems),
		ThankYou:     readText(object, "thankYou", problems),
		Lang:         readText(object, "lang", problems),
		Enabled:      object.Flag("enabled", problems),
	}
	if object.Has("lang") && (change.Lang == nil || !engage.KnownLanguage(*change.Lang)) {
		problems["lang"] = "Must be one of these languages: " + strings.Join(engage.Languages(), ", ") + "."
	}
	if object.Has("allowedOrigins") {
		change.AllowedOrigins = &[]string{}
		if !readTexts(object, "allowedOrigins", change.AllowedOrigins) {
			problems["allowedOrigins"] = notOrigins
		}
	}
	if object.Has("retentionMonths") {
		months, _ := strconv.Atoi(string(object["retentionMonths"])) // out of range unless it is an integer
		change.RetentionMonths = &months
	}
	return change
}

// readText reads a text with the line breaks of forms.
func readText(object rest.Object, name string, problems rest.Problems) *string {
	text := object.OptionalText(name, problems)
	if text != nil {
		*text = strings.ReplaceAll(*text, "\r\n", "\n")
	}
	return text
}

// readChange reads the body of PATCH, whose members are all optional. The error is a rest.Problems.
func readChange(object rest.Object) (engage.Change, error) {
	problems := rest.UnknownMembers(object, formMembers...)
	if object.Has("fields") {
		problems["fields"] = "The fields of a form cannot change. Create another form, and close this one with " +
			"enabled: false."
	}
	change := readMembers(object, problems)
	return change, problems.Join(change.Check())
}

// readField reads name, label, type, required (default false), options and askIf.
func readField(at string, element json.RawMessage, problems rest.Problems) engage.Field {
	object, err := rest.ParseObject(element)
	if err != nil {
		problems[at] = "Must be an object with name, label, type, required and, for select and multiselect, options."
		return engage.Field{}
	}
	own := rest.UnknownMembers(object, "name", "label", "type", "required", "options", "askIf")
	var f engage.Field
	text := func(key string) string {
		value, isText := object.Text(key)
		if !isText {
			own[key] = notText
		}
		return value
	}
	f.Name, f.Label, f.Type = text("name"), text("label"), engage.Type(text("type"))
	required := object.Flag("required", own)
	f.Required = required != nil && *required
	if object.Has("options") && !readTexts(object, "options", &f.Options) {
		own["options"] = "Must be an array of strings."
	}
	if object.Has("askIf") {
		f.AskIf = readCondition(object["askIf"], own)
	}
	for name, message := range own {
		problems[at+"."+name] = message
	}
	return f
}

// readCondition reads the member askIf of a field, whose type decides what equals may be.
func readCondition(element json.RawMessage, problems rest.Problems) *engage.Condition {
	object, err := rest.ParseObject(element)
	if err != nil || len(rest.UnknownMembers(object, "field", "equals")) > 0 {
		problems["askIf"] = "Must be an object with field and equals, and no other member."
		return nil
	}
	var c engage.Condition
	c.Field, _ = object.Text("field")
	if option, isText := object.Text("equals"); isText {
		c.Equals = option
	} else if string(object["equals"]) == "true" {
		c.Equals = true
	}
	return &c
}

// readTexts reads a list of strings. It returns false for null or a null element.
func readTexts(object rest.Object, key string, into *[]string) bool {
	var elements []*string
	if object.Null(key) || json.Unmarshal(object[key], &elements) != nil {
		return false
	}
	for _, element := range elements {
		if element == nil {
			return false
		}
		*into = append(*into, *element)
	}
	return true
}
