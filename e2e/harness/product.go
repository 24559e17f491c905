package harness

import (
	"bufio"
	"bytes"
	_ "embed" // for smuggling
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/client"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Product is a running Almoner as one test uses it. Its actors are those of the specification: a Person at a
// browser, a ConfidentialApp, a Connector, a Service, and API callers. They use HTTP only. What HTTP cannot arrange
// (a membership that ends, a feature that is switched off, time that passes) the Database type does as the owner of the
// database.
//
// Actors do not check anything: they return an Answer or a Page, and the test states what it expects.
type Product struct {
	BaseURL  string // of the API, and the issuer
	AppURL   string // of login, consent and settings
	Demo     demo.Demo
	Database *Database

	secrets *Secrets
	client  *http.Client
}

// timeout is the timeout of a request. The product's own limits are far below it.
const timeout = await.Long

// NewProduct returns the product for a test. Every secret that its actors use is recorded in secrets.
func NewProduct(t testing.TB, s *stack.Stack, secrets *Secrets) *Product {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return NewProductWithTransport(t, s, secrets, transport)
}

// NewProductWithTransport is like NewProduct with requests sent by the transport.
func NewProductWithTransport(t testing.TB, s *stack.Stack, secrets *Secrets, transport http.RoundTripper) *Product {
	t.Helper()
	recordOf(s).secrets.Store(secrets, nil)
	secrets.noteStack(s)
	d := s.Demo
	for _, user := range []demo.User{d.Users.Owner, d.Users.Reader, d.Users.Registrar, d.Users.Outsider} {
		secrets.Add("password", user.Password)
	}
	return &Product{
		BaseURL:  s.BaseURL,
		AppURL:   s.AppURL,
		Demo:     d,
		Database: newDatabase(t, s.DatabaseURL, secrets),
		secrets:  secrets,
		client: &http.Client{
			Timeout:       timeout,
			CheckRedirect: followNothing,
			Transport:     watched(t, s, secrets, transport),
		},
	}
}

// followNothing returns every redirect to the test.
func followNothing(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// API returns the base URL without credentials.
func (p *Product) API() API { return API{p, p.client, p.BaseURL, http.Header{}} }

// App returns the app URL without credentials or cookies.
func (p *Product) App() API { return API{p, p.client, p.AppURL, http.Header{}} }

// As returns the API with a bearer token, for account routes.
func (p *Product) As(token string) API { return p.API().With("Authorization", "Bearer "+token) }

// In returns the API with a bearer token and the tenant header.
func (p *Product) In(workspace demo.Workspace, token string) API {
	return p.As(token).With("X-Tenant-Id", workspace.ID)
}

// An API is one of the product's base URLs with the headers that a caller sends. It is a value: With returns a copy.
type API struct {
	product *Product
	client  *http.Client
	base    string
	header  http.Header
}

// With returns a copy that sends this header in place of any earlier value.
func (a API) With(name string, values ...string) API {
	a.header = a.header.Clone()
	a.header[http.CanonicalHeaderKey(name)] = values
	return a
}

// Without returns a copy that does not send the header.
func (a API) Without(name string) API {
	a.header = a.header.Clone()
	a.header.Del(name)
	return a
}

// Get sends GET.
func (a API) Get(t testing.TB, path string) Answer {
	t.Helper()
	return a.Send(t, http.MethodGet, path, "", "")
}

// JSON sends the value as JSON. A string is sent unchanged.
func (a API) JSON(t testing.TB, method, path string, value any) Answer {
	t.Helper()
	text, isText := value.(string)
	if !isText {
		encoded, err := json.Marshal(value)
		must(t, err)
		text = string(encoded)
	}
	return a.Send(t, method, path, "application/json", text)
}

const formType = "application/x-www-form-urlencoded"

// Form posts a form.
func (a API) Form(t testing.TB, path string, form url.Values) Answer {
	t.Helper()
	return a.Send(t, http.MethodPost, path, formType, form.Encode())
}

// Send sends a request with any method and body.
func (a API) Send(t testing.TB, method, path, contentType, body string) Answer {
	t.Helper()
	answer, err := a.Try(t, method, path, contentType, body)
	if err != nil {
		t.Fatalf("%s: %v", answer.Request, err)
	}
	return answer
}

// Try is like Send for requests that may get no response, as in an outage.
func (a API) Try(t testing.TB, method, path, contentType, body string) (Answer, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		return Answer{Request: method}, err
	}
	maps.Copy(request.Header, a.header)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if host := a.header.Get("Host"); host != "" {
		request.Host = host
	}
	answer := Answer{Request: method + " " + request.URL.Path}
	response, err := a.client.Do(request)
	if failed, is := errors.AsType[*url.Error](err); is {
		return answer, failed.Err // without the URL, because its query may contain a code
	}
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	answer.Status, answer.Header = response.StatusCode, response.Header
	answer.Body, err = io.ReadAll(response.Body)
	return answer, err
}

// Client returns a Go client of a program that acts in the workspace.
func (p *Product) Client(
	t testing.TB, workspace demo.Workspace, tokens oauth2.TokenSource, options ...client.Option,
) *client.Client {
	t.Helper()
	c, err := client.New(p.BaseURL, workspace.ID, tokens,
		append([]client.Option{client.WithHTTPClient(p.HTTPClient())}, options...)...)
	must(t, err)
	return c
}

// Client returns a Go client with the bearer token and the tenant header that this caller sends.
func (a API) Client(t testing.TB) *client.Client {
	t.Helper()
	token := strings.TrimPrefix(a.header.Get("Authorization"), "Bearer ")
	return a.product.Client(t, demo.Workspace{ID: a.header.Get("X-Tenant-Id")}, Bearer(token))
}

// Bearer returns a token source for a token that does not change, such as a personal access token.
func Bearer(token string) oauth2.TokenSource {
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})
}

// HTTPClient returns an HTTP client for programs that bring their own. The secrets in its traffic are recorded.
func (p *Product) HTTPClient() *http.Client {
	return &http.Client{Timeout: timeout, Transport: p.client.Transport}
}

// An Answer is the response to one request.
type Answer struct {
	Request string // method and path
	Status  int
	Header  http.Header
	Body    []byte
}

// longestPrint is the maximum length of a body in a failure message, in bytes.
const longestPrint = 2000

// String returns the answer for a failure message: the visible text of an HTML page or the body, the Location header
// and no other header. Secrets are redacted.
func (a Answer) String() string {
	body := string(a.Body)
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		body = readable(a.Body)
	}
	if len(body) > longestPrint {
		body = body[:longestPrint] + "…"
	}
	return fmt.Sprintf("%s\n  → %d %s\n  %s", a.Request, a.Status, Redact(a.Header.Get("Location")), Redact(body))
}

// Wants fails the test now unless the status is the given one. It returns the answer.
func (a Answer) Wants(t testing.TB, status int) Answer {
	t.Helper()
	if a.Status != status {
		t.Fatalf("want status %d:\n%s", status, a)
	}
	return a
}

// Object returns the body, which must be a single JSON object declared as application/json.
func (a Answer) Object(t testing.TB) map[string]any {
	t.Helper()
	if kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		t.Fatalf("Content-Type %q is not JSON:\n%s", a.Header.Get("Content-Type"), a)
	}
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || object == nil || decoder.More() {
		t.Fatalf("the body is not one JSON object:\n%s", a)
	}
	return object
}

// Into decodes the body into value. Unknown fields fail the test.
func (a Answer) Into(t testing.TB, value any) {
	t.Helper()
	a.Object(t)
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		t.Fatalf("the body does not have the wanted shape (%v):\n%s", err, a)
	}
}

// WantsKeys checks that the object has exactly these keys, and returns it.
func (a Answer) WantsKeys(t testing.TB, keys ...string) map[string]any {
	t.Helper()
	object := a.Object(t)
	slices.Sort(keys)
	if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, keys) {
		t.Errorf("keys %v, want %v:\n%s", got, keys, a)
	}
	return object
}

// WantsNested checks for {"error":{"code","message"}} (spec 7.1, module endpoints) and returns the message.
func (a Answer) WantsNested(t testing.TB, status int, code string) string {
	t.Helper()
	object := a.Wants(t, status).WantsKeys(t, "error")
	inner, _ := object["error"].(map[string]any)
	message, _ := inner["message"].(string)
	for key := range inner {
		if key != "code" && key != "message" && key != "fields" {
			t.Errorf("unexpected key error.%s:\n%s", key, a)
		}
	}
	if inner["code"] != code || message == "" {
		t.Errorf("want error.code %s and a message:\n%s", code, a)
	}
	return message
}

// WantsFlat checks for {"error","error_description"} (contract, sections 3 and 5) and returns the description.
// Several codes mean that the contract allows any of them.
func (a Answer) WantsFlat(t testing.TB, status int, codes ...string) string {
	t.Helper()
	object := a.Wants(t, status).WantsKeys(t, "error", "error_description")
	code, _ := object["error"].(string)
	description, _ := object["error_description"].(string)
	if !slices.Contains(codes, code) || description == "" {
		t.Errorf("want error %s and a description:\n%s", strings.Join(codes, " or "), a)
	}
	return description
}

// WantsHeader checks one header.
func (a Answer) WantsHeader(t testing.TB, name, value string) Answer {
	t.Helper()
	if got := a.Header.Get(name); got != value {
		t.Errorf("header %s is %q, want %q:\n%s", name, got, value, a)
	}
	return a
}

// WantsRetryAfter checks that Retry-After is a positive number of seconds.
func (a Answer) WantsRetryAfter(t testing.TB) Answer {
	t.Helper()
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("Retry-After is %q, want seconds:\n%s", a.Header.Get("Retry-After"), a)
	}
	return a
}

// A JWT is a decoded token. It is decoded without the product's libraries.
type JWT struct {
	Header map[string]any
	Claims map[string]any

	Signed    string // header and claims, encoded
	Signature []byte
}

// Decode decodes a compact JWS without verifying it.
func Decode(t testing.TB, token string) JWT {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("an access token has %d parts", len(parts))
	}
	out := JWT{Signed: parts[0] + "." + parts[1]}
	out.Header, out.Claims = decodePart(t, parts[0]), decodePart(t, parts[1])
	signature, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		t.Fatal("the signature of an access token is not base64url")
	}
	out.Signature = signature
	return out
}

func decodePart(t testing.TB, part string) map[string]any {
	t.Helper()
	content, err := base64.RawURLEncoding.Strict().DecodeString(part)
	var out map[string]any
	if err != nil || json.Unmarshal(content, &out) != nil {
		t.Fatal("a part of an access token is not JSON in base64url")
	}
	return out
}

// GrantOf returns the id of the grant that an access token belongs to.
func GrantOf(t testing.TB, accessToken string) string {
	t.Helper()
	id, _ := Decode(t, accessToken).Claims["grant_id"].(string)
	if id == "" {
		t.Fatal("an access token without grant_id")
	}
	return id
}

// SendRaw sends bytes unchanged on a connection and returns every response until the server closes it. Unless the text
// asks for that (Connection: close), SendRaw closes the connection after 700 ms, because a server that waits for more
// of a body sends no response; on a slow machine, it may miss a response then.
func SendRaw(connection net.Conn, text string) []*http.Response {
	defer func() { _ = connection.Close() }()
	within := 700 * time.Millisecond
	if strings.Contains(text, "\r\nConnection: close\r\n") {
		within = await.Long
	}
	_ = connection.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(connection, text); err != nil {
		return nil // closed by the server
	}
	var out []*http.Response
	for reader := bufio.NewReader(connection); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return out
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			return append(out, response)
		}
		out = append(out, response)
	}
}

// smuggling.json has the requests of SmugglingRequests. {first} begins a POST. {second} is the hidden request.
// {chunked} is a body that ends before {second} if it is read in chunks, and {length} the header of its whole length.
//
//go:embed smuggling.json
var smuggling []byte

// SmugglingRequests returns requests with an ambiguous end, by the kind of ambiguity. Each hides a second request that
// only one interpretation sees.
func SmugglingRequests(path, host, hidden string) map[string]string {
	second := "GET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	chunked := "0\r\n\r\n" + second
	values := strings.NewReplacer(
		"{first}", "POST "+path+" HTTP/1.1\r\nHost: "+host+"\r\nContent-Type: application/json\r\n",
		"{length}", fmt.Sprintf("Content-Length: %d\r\n", len(chunked)),
		"{length of second}", strconv.Itoa(len(second)), "{20 KiB}", strings.Repeat("x", 20<<10),
		"{path}", path, "{host}", host, "{hidden}", hidden, "{second}", second, "{chunked}", chunked)
	var all map[string]string
	if err := json.Unmarshal(smuggling, &all); err != nil {
		panic("smuggling.json: " + err.Error())
	}
	for kind, text := range all {
		all[kind] = values.Replace(text)
	}
	return all
}
