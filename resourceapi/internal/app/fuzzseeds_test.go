package app

import (
	"slices"
	"strings"
)

// A routeSeed is a request and its expected status.
type routeSeed struct {
	method, place, id, query, headers, body string
	status                                  int
}

const (
	here     = "X-Tenant-Id: <tenant>\n"
	byPAT    = "Authorization: Bearer <pat>\n" + here
	byAccess = "Authorization: Bearer <access>\n" + here
	asObject = "Content-Type: application/json\n"
	asCSV    = "Content-Type: text/csv\n"
	asForm   = "Content-Type: application/x-www-form-urlencoded\n"
	keyed    = "Idempotency-Key: <fresh>\n"
)

func routeSeeds() []routeSeed {
	return slices.Concat(programmeSeeds(), formSeeds(), publicSeeds(), assistantSeeds())
}

func programmeSeeds() []routeSeed {
	const one, moves, imports = listPath + "/{id}", listPath + "/{id}/transitions", listPath + "/imports"
	return []routeSeed{
		{"GET", listPath, "", "", byPAT, "", 200},
		{"GET", listPath, "", "limit=2&status=draft&q=programme", byAccess, "", 200},
		{"GET", listPath, "", "cursor=<cursor>&limit=1", byPAT, "", 200},
		{"GET", listPath, "", "cursor=<cursor>x", byPAT, "", 400},
		{"GET", listPath, "", "limit=0&q=%00%ff", byPAT, "", 400},
		{"GET", listPath, "", "limit=99999999999999999999&limit=1", byPAT, "", 400},
		{"GET", listPath, "", "q=%25_%5c'", byPAT, "", 200},
		{"GET", listPath, "", "", "", "", 401},
		{"GET", listPath, "", "", here + "Authorization: Bearer <pat>x\n", "", 401},
		{"GET", listPath, "", "", here + "Authorization: bearer  <access>\n", "", 200},
		{"GET", listPath, "", "", byPAT + byPAT, "", 401},
		{"GET", listPath, "", "", here + "Authorization: Bearer a.b.c\n", "", 401},
		{"GET", listPath, "", "", "Authorization: Bearer <pat>\n", "", 400},
		{"GET", listPath, "", "", "Authorization: Bearer <pat>\nX-Tenant-Id: <fresh>\n", "", 403},
		{
			"POST", listPath, "", "", byPAT + asObject + keyed,
			`{"name":"Warm Homes","summary":"Advice","startsOn":"2026-04-01","endsOn":null}`, 201,
		},
		{"POST", listPath, "", "", byPAT + asObject + "Idempotency-Key: \xff\n", `{"name":"x"}`, 400},
		{"POST", listPath, "", "", byPAT + asObject, `{"name":"\u0000\ud800","startsOn":"2026-02-30"}`, 400},
		{"POST", listPath, "", "", byPAT + asObject, `{"name":"x","name":"y"}`, 400},
		{"POST", listPath, "", "", byPAT + asObject + "Transfer-Encoding: chunked\n", "1\r\n{\r\n", 400},
		{"GET", one, "<programme>", "", byPAT, "", 200},
		{"HEAD", one, "<programme>", "", byPAT, "", 200},
		{"GET", one, "%00", "", byPAT, "", 404},
		{"GET", one, "<fresh>", "", byPAT, "", 404},
		{"PATCH", one, "<programme>", "", byPAT + asObject + "If-Match: *\n", `{"name":"Other"}`, 200},
		{"PATCH", one, "<programme>", "", byPAT + asObject + "If-Match: \"x\"\n", `{"summary":"Other"}`, 412},
		{"PATCH", one, "<programme>", "", byPAT + asObject, `{"status":"active"}`, 400},
		{"PATCH", one, "%ff", "", byPAT + asObject + keyed, `{"name":"x"}`, 404}, // the key is stored with the path
		{"POST", moves, "%00", "", byPAT + asObject + keyed, `{"to":"active"}`, 404},
		{"PATCH", one, "<programme>", "", byPAT + asObject, `{"endsOn":"9999-12-31","startsOn":"0001-01-01"}`, 200},
		{"POST", moves, "<programme>", "", byPAT + asObject, `{"to":"active"}`, 200},
		{"POST", moves, "<programme>", "", byPAT + asObject, `{"to":"completed"}`, 409},
		{"POST", moves, "<programme>", "", byPAT + asObject, `{"to":[]}`, 400},
		{
			"POST", imports, "", "", byPAT + asCSV,
			"\ufeffname,status,startsOn\r\n\"Warm\nHomes\",active,2026-04-01\r\n", 202,
		},
		{"POST", imports, "", "", byPAT + asCSV + keyed, "name\n\"open\n", 202},
		{"POST", imports, "", "", byPAT + asCSV, "name,endsOn\nx,0000-00-00\n,\n", 202},
		{"POST", imports, "", "", byPAT + asCSV, "Name\nx\n", 400},
		{"POST", imports, "", "", byPAT + asCSV, "name\nx\x00\n", 400},
		{"GET", "<import>", "", "", byPAT, "", 200},
		{"GET", imports + "/{id}", "x", "", byPAT, "", 404},
		{"DELETE", listPath, "", "", "", "", 405},
		{"BREW", "/{id}", "%2e%2e/", "", "", "", 404},
	}
}

func formSeeds() []routeSeed {
	const one = formsPath + "/{id}"
	const wrong = `{"title":"\u0000","fields":[{"name":"a","type":"select","options":[]}],` +
		`"allowedOrigins":["*","https://x/y"]}`
	return []routeSeed{
		{"GET", formsPath, "", "limit=1", byPAT, "", 200},
		{"GET", formsPath, "", "cursor=x", byPAT, "", 400},
		{"POST", formsPath, "", "", byPAT + asObject, allTypes, 201},
		{"POST", formsPath, "", "", byPAT + asObject, wrong, 400},
		{"GET", one, "<form>", "", byPAT, "", 200},
		{"GET", one, "<programme>", "", byPAT, "", 404},
		{"PATCH", one, "<form>", "", byPAT + asObject, `{"enabled":false}`, 200},
		{"PATCH", one, "<form>", "", byPAT + asObject, `{"fields":null}`, 400},
		{"GET", one + "/submissions", "<form>", "limit=200", byPAT, "", 200},
		{"GET", one + "/submissions", "<fresh>", "", byPAT, "", 404},
	}
}

func publicSeeds() []routeSeed {
	good := submissionOf("SENDING", goodAnswers())
	good = strings.Replace(good, "SENDING", "<sending>", 1)
	const typed = "submissionToken=<sending>&a.name=Ada&a.email=ada@example.org&a.privacy=yes"
	const from = "Origin: " + goodOrigin + "\n"
	return []routeSeed{
		{"GET", "<embed>", "", "", from, "", 200},
		{"GET", "<embed>", "", "", "Origin: " + otherOrigin + "\n", "", 403},
		{"OPTIONS", "<embed>/submissions", "", "", from, "", 204},
		{"POST", "<embed>/submissions", "", "", from + asObject + keyed, good, 202},
		{"POST", "<embed>/submissions", "", "", asObject, strings.Replace(good, "<sending>", "<status>", 1), 400},
		{"POST", "<embed>/submissions", "", "", asObject, strings.Replace(good, "3.5", "1e999", 1), 400},
		{"POST", "<embed>/submissions", "", "", asObject, strings.Replace(good, `"Ada Okafor"`, `[{}]`, 1), 400},
		{"POST", "<embed>/submissions", "", "", asObject, `{"submissionToken":"<sending>","answers":null}`, 400},
		{"POST", "<embed>/submissions", "", "", asObject + "Idempotency-Key: a b\n", good, 400},
		{"GET", "<embed>/embed", "", "frame=1", "", "", 200},
		{"GET", "<embed>/embed", "", "submission=<fresh>&token=x", "", "", 404},
		{"POST", "<embed>/embed", "", "", asForm, typed, 303},
		{"POST", "<embed>/embed", "", "frame=1", asForm + from, typed + "&a.days=Monday&a.days=%ff&a.hours=x", 400},
		{"POST", "<embed>/embed", "", "", asForm, "submissionToken=x&a.name=%00", 400},
		{"POST", "<embed>/embed", "", "", asObject, "{}", 400},
		{"GET", "<submission>", "", "token=x", "", "", 404},
		{"GET", publicPath + "/submissions/{id}", "x", "token=%00", "", "", 404},
		{"GET", publicPath + "/forms/{id}", "alm_embed_x%00", "", "", "", 404},
		{"GET", publicPath + "/{id}", "embed.js", "", "", "", 200},
		{"GET", "/.well-known/oauth-protected-resource{id}", "/v1", "", "", "", 200},
		{"GET", "/v1/{id}", "openapi.json", "", "", "", 200},
		{"GET", "/v1/{id}", "docs", "", "", "", 200},
		{"GET", "/readyz", "", "", "", "", 200},
	}
}

func assistantSeeds() []routeSeed {
	const assisted = "Authorization: Bearer <assistant>\nContent-Type: application/json\nAccept: application/json, " +
		"text/event-stream\nMcp-Protocol-Version: 2025-06-18\n"
	get := strings.Replace(calling("get_programme", map[string]any{"id": "ID"}), "ID", "<programme>", 1)
	post := func(headers, body string, status int) routeSeed {
		return routeSeed{"POST", mcpPath, "", "", headers, body, status}
	}
	return []routeSeed{
		post(assisted, initialize, 200),
		post(assisted, request("tools/list", nil), 200),
		post(assisted, calling("whoami", map[string]any{}), 200),
		post(assisted, get, 200),
		post(assisted, calling("list_programmes", map[string]any{"limit": 1e99, "q": "\x00"}), 200),
		post(assisted, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202),
		post(strings.Replace(assisted, "<assistant>", "<pat>", 1), initialize, 200),
		post(
			strings.Replace(assisted, "2025-06-18", "2025-03-26", 1),
			"["+strings.Replace(request("ping", nil), `"id":7`, `"id":8`, 1)+","+calling("whoami", nil)+"]",
			200,
		),
		post(assisted, "[]", 400),
		post(assisted, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400),
		post(assisted, "\xff", 400),
		post(strings.Replace(assisted, "<assistant>", "<access>", 1), initialize, 401),
		post("Origin: null\n"+assisted, initialize, 403),
		post(strings.Replace(assisted, "2025-06-18", "x", 1), initialize, 200),
		{"GET", mcpPath, "", "", assisted, "", 405},
		{"OPTIONS", mcpPath, "", "", "Origin: https://claude.ai\n", "", 204},
	}
}
