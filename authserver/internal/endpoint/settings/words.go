package settings

import (
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// eventView describes an event to reader, the user whom it may concern, or to a reader of the workspace's log if reader
// is nil.
func eventView(e audit.Entry, reader *uuid.UUID) ui.Event {
	if reader != nil && e.UserID != nil && *e.UserID == *reader {
		e.Person = "" // readers know their own name
	}
	out := ui.Event{At: e.At, What: what(e), RequestID: e.RequestID, Alarming: alarming(e)}
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
		out.Who = "Almoner"
	case e.Actor == "anonymous":
		out.Who = "Not signed in"
	default:
		out.Who = e.Actor
	}
	return out
}

// what describes the event.
func what(e audit.Entry) string {
	name, _ := e.Detail["name"].(string)
	application := e.Application
	if application == "" {
		application = "an application"
	}
	switch e.Action {
	case "sign_in.succeeded":
		return "Signed in" + onDevice(e)
	case "sign_in.failed":
		return "Sign-in failed: wrong password"
	case "sign_in.ended":
		return "Signed out another browser"
	case "sign_in.others_ended":
		return "Signed out all other browsers"
	case "grant.consented":
		return "Approved access for " + application + forPerson(e)
	case "grant.revoked":
		reason, _ := e.Detail["reason"].(string)
		if grant.Reason(reason) == grant.ByUser {
			return "Disconnected " + application + forPerson(e)
		}
		return grant.Reason(reason).Explain(application+forPerson(e), nil)
	case "grant.refused":
		description, _ := e.Detail["description"].(string)
		return "Refused a token request from " + application + forPerson(e) + ". " + description
	case "grant.narrowed":
		return grantNarrowed(e, application)
	case "connector_policy.changed":
		return policyChanged(e)
	case "token.created":
		return "Created the personal access token " + name
	case "token.revoked":
		switch e.Detail["reason"] {
		case pat.Replaced:
			return "A personal access token was revoked because its replacement was used"
		case string(grant.MembershipOver):
			return "The personal access token " + name + forPerson(e) + " was revoked because the membership ended"
		}
		return "Revoked the personal access token " + name
	case "client.registered":
		return "Registered the application " + application
	case "client.deleted":
		return "Deleted the application " + application
	case "client.secret_replaced":
		return "Replaced the secret of the application " + application
	case "audit.exported":
		return "Exported the audit log"
	}
	if words := administrationWords(e); words != "" {
		return words
	}
	return signInMethodWords(e)
}

func onDevice(e audit.Entry) string {
	if agent, ok := e.Detail["user_agent"].(string); ok {
		return " with " + device(agent)
	}
	return ""
}

func forPerson(e audit.Entry) string {
	if e.Person == "" || e.Person == e.ActorName {
		return ""
	}
	return " (" + e.Person + ")"
}

func alarming(e audit.Entry) bool {
	reason, _ := e.Detail["reason"].(string)
	switch grant.Reason(reason) {
	case grant.Replayed, grant.CodeReused, grant.CodeGuessed:
		return true
	}
	return e.Action == "sign_in.failed" || e.Action == passkeyStopped
}

// device returns the display name of a browser and its system. The User-Agent header is not proof of either.
func device(agent string) string {
	return named(agent, "A browser", [][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
		{"curl/", "curl"},
	}) + named(agent, "", [][2]string{
		{"Android", " on Android"}, {"iPhone", " on an iPhone"}, {"iPad", " on an iPad"}, {"Windows", " on Windows"},
		{"Mac OS X", " on a Mac"}, {"Linux", " on Linux"},
	})
}

func named(agent, otherwise string, names [][2]string) string {
	for _, name := range names {
		if strings.Contains(agent, name[0]) {
			return name[1]
		}
	}
	return otherwise
}
