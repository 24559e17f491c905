package settings

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An auditView is Settings → Audit log, for one workspace.
type auditView struct {
	logPage
	Acts []act
}

// An eventRow is an event in words. Its methods are for eventwords.txt.
type eventRow struct {
	audit.Entry
	What     string // Title and More
	Title    string
	More     string
	Who      string
	Where    string // where the request came from, or ""
	Alarming bool
	Own      bool // the reader acted
}

func (s *Settings) auditLog() workspaceLog[audit.Entry] {
	return workspaceLog[audit.Entry]{
		section:  auditSection,
		read:     s.Store.EventsOfWorkspace,
		atOnce:   100,
		most:     500,
		lines:    actsOf,
		kinds:    audit.Kinds(),
		cursor:   audit.Entry.Cursor,
		name:     "audit",
		exported: audit.AuditExported,
		columns: []string{
			"at", "action", "actor", "person", "application", "subject", "detail", "requestId", "userId", "tenantId",
			"id",
		},
		cells: auditCells,
		line: func(e audit.Entry) any {
			return auditLine{
				e.ID, e.At.UTC(), e.WorkspaceID, e.UserID, e.Actor, e.Action, e.Subject, e.Detail, e.RequestID,
			}
		},
	}
}

func (s *Settings) showAuditLog(r *request) error {
	entries, common, err := s.auditLog().entries(r)
	if err != nil {
		return err
	}
	view, room := &auditView{logPage: common}, mostUnfolded
	for _, events := range entries {
		one := describeAct(events, room)
		room -= len(one.Listed)
		one.Former = r.formerMember(events)
		view.Acts = append(view.Acts, one)
	}
	return r.show("audit", view)
}

// formerMember returns the path of the page of the former member whose membership one of the events ended, or "" if
// there is none that the user may open.
func (r *request) formerMember(events []audit.Entry) string {
	for _, e := range events {
		ended := e.Action == audit.MemberRemoved || e.Action == audit.MemberLeft
		if ended && e.UserID != nil && r.here.Permissions.Has(perm.AccountReadMembers) {
			return memberPath(r.here.Workspace.ID, *e.UserID)
		}
	}
	return ""
}

// An auditLine is the exported JSON of one event.
type auditLine struct {
	ID          uuid.UUID      `json:"id"`
	At          time.Time      `json:"at"`
	WorkspaceID *uuid.UUID     `json:"tenantId"`
	UserID      *uuid.UUID     `json:"userId"`
	Actor       string         `json:"actor"`
	Action      string         `json:"action"`
	Subject     string         `json:"subject"`
	Detail      map[string]any `json:"detail"`
	RequestID   string         `json:"requestId"`
}

func auditCells(e audit.Entry) []string {
	id := func(id *uuid.UUID) string {
		if id == nil {
			return ""
		}
		return id.String()
	}
	var detail strings.Builder
	_ = web.NewEncoder(&detail).Encode(e.Detail) // it was JSON in the database
	return []string{
		e.At.UTC().Format(time.RFC3339), e.Action, e.Actor, e.Person, e.Application, e.Subject,
		strings.TrimSpace(detail.String()), e.RequestID, id(e.UserID), id(e.WorkspaceID), e.ID.String(),
	}
}

// eventView describes an event to the user reader, whom it may concern, or to a reader of the workspace's log if reader
// is nil.
func eventView(e audit.Entry, reader *uuid.UUID) eventRow {
	if reader != nil && e.UserID != nil && *e.UserID == *reader {
		e.Person = "" // readers know their own name
	}
	described, known := audit.Describe(e.Action)
	if !known {
		described.Text = e.Action
	}
	out := eventRow{Entry: e, Own: reader != nil && e.Actor == "user:"+reader.String()}
	if reader != nil {
		described.Text = cmp.Or(described.Own, described.Text)
	}
	title, more, _ := strings.Cut(described.Text, ". ")
	out.What, out.Title, out.More = out.fill(described.Text), out.fill(title), out.fill(more)
	out.Where = cmp.Or(out.Text("address"), out.Origin())
	out.Alarming = described.Alarming || looksStolen(grant.Reason(out.Text("reason")))
	if !out.Own {
		kind, _, _ := strings.Cut(e.Actor, ":")
		out.Who = cmp.Or(e.ActorName, actors[kind], e.Actor)
		if kind == "client" {
			out.Who = cmp.Or(e.Application, out.Who)
		}
	}
	return out
}

// actors are the kinds of actors that have no name of their own.
var actors = map[string]string{
	"client":    "The app",
	"admin":     "The person who runs this service",
	"system":    "This service",
	"anonymous": "Not signed in",
}

// placeholder matches a detail in the text of an audit.Description, with the space before it.
var placeholder = regexp.MustCompile(` ?\{[a-z]+\}`)

//go:embed eventwords.txt
var eventWords string

// details are the texts that replace the placeholders: templates of an eventRow.
var details = template.Must(template.New("").Funcs(template.FuncMap{"title": perm.ModuleTitle}).Parse(eventWords))

// fill replaces the placeholders in the text of a description by details of the event.
func (e eventRow) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		space, name, _ := strings.Cut(strings.TrimSuffix(found, "}"), "{")
		var words strings.Builder
		if details.ExecuteTemplate(&words, name, e) != nil {
			return found // a mistake in the table
		}
		if words.Len() == 0 {
			return ""
		}
		return space + words.String()
	})
}

// Text returns a detail of the event that is a string, or "".
func (e eventRow) Text(name string) string {
	found, _ := e.Detail[name].(string)
	return found
}

// Flag reports whether a detail of the event is true.
func (e eventRow) Flag(name string) bool { return e.Detail[name] == true }

// Has reports whether the event has a detail.
func (e eventRow) Has(name string) bool {
	_, has := e.Detail[name]
	return has
}

// Titles returns the titles of the permissions of a detail.
func (e eventRow) Titles(name string) []string { return titles(set(e.Detail, name)) }

// List returns a detail of the event that is a list of strings, in words.
func (e eventRow) List(name string) string { return strings.Join(identifiers(e.Detail[name]), ", ") }

// Device returns the browser of a sign-in, or "".
func (e eventRow) Device() string {
	if agent := e.Text("user_agent"); agent != "" {
		return strings.Replace(session.DeviceName(agent), "A browser", "a browser", 1)
	}
	return ""
}

// Concerns returns the user whom the event concerns, unless the user acted.
func (e eventRow) Concerns() string {
	if e.Person == "" || e.Person == e.ActorName {
		return ""
	}
	return "(" + e.Person + ")"
}

// ApplicationAndUser names the application of the event and the user whom it concerns, unless the user acted.
func (e eventRow) ApplicationAndUser() string {
	return strings.TrimSpace(cmp.Or(e.Application, "an app") + " " + e.Concerns())
}

// Refusal says why a request of an application was refused.
func (e eventRow) Refusal() string { return connectionlog.Words(e.Text("description")) }

// Origin says where the request that ended a grant came from, or "".
func (e eventRow) Origin() string {
	found, _ := e.Detail["ending"].(map[string]any)
	network, _ := found["network"].(string)
	agent, _ := found["user_agent"].(string)
	return grant.Reuse{Network: network, UserAgent: agent}.Origin()
}

// Revocation says why the access of an application ended.
func (e eventRow) Revocation() string {
	return strings.TrimSuffix(grant.Reason(e.Text("reason")).Ended(e.ApplicationAndUser(), nil), ".")
}

// Suspicion says whether the end of the access looks like theft, or "".
func (e eventRow) Suspicion() string {
	reuse := e.reuse()
	words := grant.Reason(e.Text("reason")).Suspicion(reuse)
	if reuse != nil {
		words += " To use it again, connect it again with the same choices."
	}
	return words
}

// reuse returns the Reuse that the event describes, without its origin, or nil.
func (e eventRow) reuse() *grant.Reuse {
	found, there := e.Detail["ending"].(map[string]any)
	if !there {
		return nil
	}
	used, _ := found["successor_used"].(bool)
	seconds, _ := found["seconds"].(float64)
	return &grant.Reuse{SuccessorUsed: used, Seconds: int64(seconds)}
}

// set returns the permissions of a detail.
func set(detail map[string]any, name string) perm.Set {
	return perm.FromStrings(identifiers(detail[name]))
}

// PolicyChange describes a change of the assistant rules.
func (e eventRow) PolicyChange() string {
	before, _ := e.Detail["before"].(map[string]any)
	after, _ := e.Detail["after"].(map[string]any)
	var parts []string
	if is := identifiers(after["platforms"]); !slices.Equal(identifiers(before["platforms"]), is) {
		for i, platform := range is {
			is[i] = workspace.Platform(platform).Name()
		}
		parts = append(parts, "allowed assistants: "+cmp.Or(strings.Join(is, ", "), "none"))
	}
	held, holds := set(before, "permissions"), set(after, "permissions")
	if lost := held.Without(holds); len(lost) > 0 {
		parts = append(parts, "no longer allowed: "+strings.Join(titles(lost), ", "))
	}
	if gained := holds.Without(held); len(gained) > 0 {
		parts = append(parts, "newly allowed: "+strings.Join(titles(gained), ", "))
	}
	if before["days"] != after["days"] {
		parts = append(parts, fmt.Sprintf("access lasts %v days instead of %v", after["days"], before["days"]))
	}
	return strings.Join(parts, "; ")
}

// Reduction describes what a grant lost by the assistant rules.
func (e eventRow) Reduction() string {
	out := ""
	if lost := set(e.Detail, "former_permissions").Without(set(e.Detail, "permissions")); len(lost) > 0 {
		out += ". Removed: " + strings.Join(titles(lost), ", ")
	}
	if e.Detail["ends_at"] != e.Detail["former_ends_at"] {
		if ends, err := time.Parse(time.RFC3339, e.Text("ends_at")); err == nil {
			out += ". Expires on " + ends.UTC().Format("2 January 2006")
		}
	}
	return out
}

func identifiers(value any) []string {
	list, _ := value.([]any)
	out := make([]string, 0, len(list))
	for _, one := range list {
		if text, ok := one.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

func titles(set perm.Set) []string {
	out := make([]string, len(set))
	for i, p := range set {
		entry, _ := perm.Describe(p) // a permission that is not known has no title
		out[i] = cmp.Or(entry.Title, string(p))
	}
	return out
}
