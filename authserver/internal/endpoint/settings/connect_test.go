package settings_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The links have the form that cursor.com (MCP install links) and code.visualstudio.com (MCP developer guide) describe.
func TestConnect_LinksAddServerToEditors(t *testing.T) {
	site := shared(t)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(connect)
	cursor, err := url.Parse(page.Link("cursor:"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := base64.StdEncoding.DecodeString(cursor.Query().Get("config"))
	if at := cursor.Scheme + "://" + cursor.Host + cursor.Path; err != nil ||
		at != "cursor://anysphere.cursor-deeplink/mcp/install" || cursor.Query().Get("name") != "Almoner" ||
		string(config) != `{"url":"`+mcp+`"}` {
		t.Errorf("Cursor: %s, with %s, %v", cursor, config, err)
	}
	server, err := url.PathUnescape(strings.TrimPrefix(page.Link("vscode:"), "vscode:mcp/install?"))
	if err != nil || server != `{"name":"Almoner","type":"http","url":"`+mcp+`"}` {
		t.Errorf("VS Code: %s, %v", server, err)
	}
}

// The page asks for connections that were made since it was opened, until there is one.
func TestConnect_FindsNewConnection(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	connector := func() client.Client { return site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead) }
	site.Redeemed(connector(), ada.ID)
	look := browser.Get(connect).Attribute("[data-watch]", "data-watch")
	browser.Get(look).Wants(http.StatusNoContent)
	site.Redeemed(connector(), site.Member(perm.ProgrammesRead).ID)
	browser.Get(look).As("of another user").Wants(http.StatusNoContent)
	site.Redeemed(connector(), ada.ID)
	browser.Get(look).Wants(http.StatusOK).Contains(`"workspace":"Riverside Food Bank"`)
	browser.Get(connect + "/new?since=x").Wants(http.StatusNoContent)
	site.Browser().Get(look).Wants(http.StatusSeeOther)
}
