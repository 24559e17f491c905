package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An auditView is Settings → Audit log, for one workspace.
type auditView struct {
	logPage
	Events []eventRow
}

// An eventRow is an event in words.
type eventRow struct {
	audit.Entry
	What     string
	Who      string
	Where    string // address of the browser, or ""
	Alarming bool
}

func (s *Settings) auditLog() workspaceLog[audit.Entry] {
	return workspaceLog[audit.Entry]{
		section:  auditSection,
		size:     50,
		read:     s.Store.EventsOfWorkspace,
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
	view := &auditView{logPage: common}
	for _, e := range entries {
		view.Events = append(view.Events, eventView(e, nil))
	}
	return r.show("audit", view)
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
	out := eventRow{Entry: e, What: describeEvent(e), Alarming: alarming(e)}
	out.Where, _ = e.Detail["address"].(string)
	switch {
	case reader != nil && e.Actor == "user:"+reader.String():
	case e.ActorName != "":
		out.Who = e.ActorName
	case strings.HasPrefix(e.Actor, "client:"):
		out.Who = "The application"
	case e.Actor == "admin":
		out.Who = "An administrator of the deployment"
	case e.Actor == "system":
		out.Who = "This service"
	case e.Actor == "anonymous":
		out.Who = "Not signed in"
	default:
		out.Who = e.Actor
	}
	return out
}

// placeholder matches a detail in the text of an audit.Description, with the space before it.
var placeholder = regexp.MustCompile(` ?\{[a-z]+\}`)

// describeEvent describes the event in words. If this version does not know the action, it returns the action itself.
func describeEvent(e audit.Entry) string {
	d, known := audit.Describe(e.Action)
	if !known {
		return e.Action
	}
	return placeholder.ReplaceAllStringFunc(d.Text, func(found string) string {
		space, name, _ := strings.Cut(strings.TrimSuffix(found, "}"), "{")
		text := detail(e, name)
		if text == "" {
			return ""
		}
		return space + text
	})
}

func alarming(e audit.Entry) bool {
	d, _ := audit.Describe(e.Action)
	return d.Alarming || looksStolen(grant.Reason(text(e, "reason")))
}

// detail returns the text that replaces {name}.
func detail(e audit.Entry, name string) string {
	switch name {
	case "application":
		return application(e)
	case "person":
		return person(e)
	case "browser":
		if flag(e, "own") {
			return ""
		}
		return "another browser"
	case "device":
		if agent := text(e, "user_agent"); agent != "" {
			return "with " + strings.Replace(session.DeviceName(agent), "A browser", "a browser", 1)
		}
		return ""
	case "revocation":
		return revocation(e)
	case "token":
		return tokenRevocation(e)
	case "reduction":
		return reduction(e)
	case "policy":
		return policyChange(e)
	case "changes":
		return strings.Join(identifiers(e.Detail["changes"]), ", ")
	case "feature":
		if feature := text(e, "feature"); feature != "llm_integration" {
			return "the feature " + feature
		}
		return "LLM integration"
	case "permissions":
		if held := set(e.Detail, "permissions"); len(held) > 0 {
			return "“" + strings.Join(titles(held), "”, “") + "”"
		}
		return "none"
	case "joined":
		if text(e, "invitation") != "" {
			return "Joined the workspace by an invitation"
		}
		return strings.TrimSpace("Added a member " + person(e))
	case "stopped":
		return stopped(webhook.Reason(text(e, "reason")))
	case "ended":
		if _, counted := e.Detail["grants"]; counted {
			return "and ended all that had access to the account before"
		}
		return ""
	case "personal":
		if flag(e, "personal_data") {
			return "with personal data"
		}
		return "without personal data"
	case "name", "description", "module", "state", "host":
		return text(e, name)
	}
	return "{" + name + "}" // a mistake in the table
}

// stopped says why a webhook endpoint was disabled by the service, or returns "".
func stopped(reason webhook.Reason) string {
	switch reason {
	case webhook.Failing:
		return "because it has accepted no event for three days"
	case webhook.Gone:
		return "because it answered with status 410 (gone)"
	case webhook.NoRight:
		return "because its user may no longer manage API access, or the credential that added it has ended"
	}
	return ""
}

func application(e audit.Entry) string {
	if e.Application == "" {
		return "an application"
	}
	return e.Application
}

// person returns the user whom the event concerns, unless the user acted.
func person(e audit.Entry) string {
	if e.Person == "" || e.Person == e.ActorName {
		return ""
	}
	return "(" + e.Person + ")"
}

// of returns the application and the user of the event.
func of(e audit.Entry) string { return strings.TrimSpace(application(e) + " " + person(e)) }

func revocation(e audit.Entry) string {
	reason := grant.Reason(text(e, "reason"))
	if flag(e, "unused") {
		return "An approval of " + of(e) + " ended before it was used"
	}
	if reason == grant.ByUser {
		return "Disconnected " + of(e)
	}
	ending := endingOf(e)
	words := reason.Explain(of(e), nil, ending)
	if ending != nil {
		words += " To use it again, connect it again with the same choices."
	}
	return words
}

// endingOf returns the event's description of the request that ended a grant, or nil.
func endingOf(e audit.Entry) *grant.Ending {
	found, there := e.Detail["ending"].(map[string]any)
	if !there {
		return nil
	}
	used, _ := found["successor_used"].(bool)
	seconds, _ := found["seconds"].(float64)
	network, _ := found["network"].(string)
	agent, _ := found["user_agent"].(string)
	return &grant.Ending{SuccessorUsed: used, Seconds: int64(seconds), Network: network, UserAgent: agent}
}

func tokenRevocation(e audit.Entry) string {
	switch text(e, "reason") {
	case pat.ByHolder:
		return "The personal access token " + text(e, "name") +
			" was revoked, because its value was sent for revocation"
	case pat.Replaced:
		return "A personal access token was revoked because its replacement was used"
	case string(grant.AddressProven):
		return "The personal access token " + text(e, "name") + " was revoked because the address of the account was " +
			"confirmed"
	case string(grant.MembershipOver):
		token := strings.TrimSpace(text(e, "name") + " " + person(e))
		return "The personal access token " + token + " was revoked because the membership ended"
	}
	return "Revoked the personal access token " + text(e, "name")
}

// text returns a detail of an event that is a string, or "".
func text(e audit.Entry, name string) string {
	found, _ := e.Detail[name].(string)
	return found
}

// flag reports whether a detail of an event is true.
func flag(e audit.Entry, name string) bool { return e.Detail[name] == true }

// set returns the permissions of a detail.
func set(detail map[string]any, name string) perm.Set {
	return perm.FromStrings(identifiers(detail[name]))
}

// policyChange describes a change of the connector policy and its effect on connections.
func policyChange(e audit.Entry) string {
	before, _ := e.Detail["before"].(map[string]any)
	after, _ := e.Detail["after"].(map[string]any)
	var parts []string
	if is := identifiers(after["platforms"]); !slices.Equal(identifiers(before["platforms"]), is) {
		parts = append(parts, "allowed platforms: "+platformList(is))
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
	ended, _ := e.Detail["ended"].(float64)
	return strings.Join(append(parts, effectWords(policy.Effect{End: int(ended)}, "ended", "", "")...), "; ")
}

// reduction describes what a grant lost by a connector policy.
func reduction(e audit.Entry) string {
	out := ""
	if lost := set(e.Detail, "former_permissions").Without(set(e.Detail, "permissions")); len(lost) > 0 {
		out += ". Removed: " + strings.Join(titles(lost), ", ")
	}
	if e.Detail["ends_at"] != e.Detail["former_ends_at"] {
		if ends, err := time.Parse(time.RFC3339, text(e, "ends_at")); err == nil {
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

func platformList(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	for i, name := range names {
		names[i] = workspace.Platform(name).Name()
	}
	return strings.Join(names, ", ")
}

func titles(set perm.Set) []string {
	out := make([]string, len(set))
	for i, p := range set {
		out[i] = string(p)
		if entry, known := perm.Describe(p); known {
			out[i] = entry.Title
		}
	}
	return out
}

// effectWords describes what a policy does to connections, one sentence for each effect.
func effectWords(e policy.Effect, end, lose, sooner string) []string {
	var out []string
	for _, part := range []struct {
		n    int
		does string
	}{{e.End, end}, {e.Lose, lose}, {e.Sooner, sooner}} {
		switch {
		case part.n == 1:
			out = append(out, "1 connection "+part.does+".")
		case part.n > 1:
			out = append(out, fmt.Sprintf("%d connections %s.", part.n, part.does))
		}
	}
	if e.More {
		out = append(out, "Only the latest 10,000 connections were counted.")
	}
	return out
}
