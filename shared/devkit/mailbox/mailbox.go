// Package mailbox receives mail by SMTP on loopback and shows it, for development and tests.
//
// `make run` and the end-to-end tests start one for the deployment. Messages are kept in memory, up to a bound, and are
// never delivered.
package mailbox

import (
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	netmail "net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-message/mail"
	"github.com/emersion/go-smtp"
)

const (
	maxMessages = 1000    // the oldest are forgotten
	maxSize     = 1 << 20 // of one message, in bytes
)

// A Message is a received message.
type Message struct {
	To        string    `json:"to"`
	From      string    `json:"from"`
	Subject   string    `json:"subject"`
	Text      string    `json:"text"`
	HTML      string    `json:"html"`
	At        time.Time `json:"at"`
	MessageID string    `json:"messageId"`
	Raw       string    `json:"-"` // as it was received
}

// A Mailbox receives messages. It is safe for concurrent use.
type Mailbox struct {
	// Spell returns the one spelling of an address, by which Messages compares: mail servers get the domain of an
	// address in ASCII. Set it before the first message.
	Spell func(address string) string

	server   *smtp.Server
	listener net.Listener

	mu       sync.Mutex
	messages []Message // oldest first
	changed  chan struct{}
	refuse   func(to string) error
}

// Start listens on a port of loopback.
func Start() (*Mailbox, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Mailbox{listener: listener, changed: make(chan struct{}), Spell: strings.ToLower}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{box: m}, nil }))
	m.server.Domain = "localhost"
	m.server.MaxMessageBytes = maxSize
	m.server.MaxRecipients = 1
	m.server.ReadTimeout, m.server.WriteTimeout = time.Minute, time.Minute
	m.server.ErrorLog = log.New(io.Discard, "", 0) // a client that closes its connection is not an error here
	go func() { _ = m.server.Serve(listener) }()   // ends with Close
	return m, nil
}

// URL returns the mailbox as ALMONER_SMTP_URL.
func (m *Mailbox) URL() string { return "smtp://" + m.listener.Addr().String() + "?tls=none" }

// Close stops the server.
func (m *Mailbox) Close() { _ = m.server.Close() }

// Refuse makes the server answer recipients with the error of f, or accept them if f returns nil.
func (m *Mailbox) Refuse(f func(to string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = f
}

// Messages returns the messages to an address, or all for "", the newest first.
func (m *Mailbox) Messages(to string) []Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := []Message{}
	for _, one := range slices.Backward(m.messages) {
		if to == "" || m.Spell(one.To) == m.Spell(to) {
			found = append(found, one)
		}
	}
	return found
}

// Clear forgets all messages.
func (m *Mailbox) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = nil
}

// Changed returns a channel that is closed when the next message arrives.
func (m *Mailbox) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *Mailbox) add(one Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = append(m.messages, one)
	if len(m.messages) > maxMessages {
		m.messages = slices.Delete(m.messages, 0, 1)
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// ServeHTTP serves the messages as a page to browsers and as JSON to others, the newest first; ?to= selects those to
// one address.
func (m *Mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This path supports GET only.", http.StatusMethodNotAllowed)
		return
	}
	if !namesThisMachine(r.Host) {
		http.Error(w, "Open this page as localhost or 127.0.0.1.", http.StatusForbidden)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	found := m.Messages(r.URL.Query().Get("to"))
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			_ = list.Execute(w, found) // an error means that the client has gone
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_ = list.Execute(packed, found) // likewise
		_ = packed.Close()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(found) // likewise
}

// A session is one SMTP connection.
type session struct {
	box *Mailbox
	to  string
}

// Mail implements smtp.Session.
func (*session) Mail(string, *smtp.MailOptions) error { return nil }

// Rcpt implements smtp.Session.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.box.mu.Lock()
	refuse := s.box.refuse
	s.box.mu.Unlock()
	if refuse != nil {
		if err := refuse(to); err != nil {
			return err
		}
	}
	s.to = to
	return nil
}

// Data implements smtp.Session.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	one, err := parse(string(raw))
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: err.Error()}
	}
	one.To, one.At = s.to, time.Now().UTC()
	s.box.add(one)
	return nil
}

// Reset implements smtp.Session.
func (s *session) Reset() { s.to = "" }

// Logout implements smtp.Session.
func (*session) Logout() error { return nil }

// parse reads a message with a text part, an HTML part, or both.
func parse(raw string) (Message, error) {
	one := Message{Raw: raw}
	reader, err := mail.CreateReader(strings.NewReader(raw))
	if err != nil {
		return one, err
	}
	one.Subject, _ = reader.Header.Subject()
	one.MessageID, _ = reader.Header.MessageID()
	if from, err := netmail.ParseAddress(reader.Header.Get("From")); err == nil {
		one.From = from.String()
	}
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return one, nil
		}
		if err != nil {
			return one, err
		}
		content, err := io.ReadAll(part.Body)
		if err != nil {
			return one, err
		}
		header, ok := part.Header.(*mail.InlineHeader)
		if !ok {
			continue
		}
		switch kind, _, _ := header.ContentType(); kind {
		case "text/plain":
			one.Text = strings.ReplaceAll(string(content), "\r\n", "\n")
		case "text/html":
			one.HTML = strings.ReplaceAll(string(content), "\r\n", "\n")
		}
	}
}

//go:embed list.html
var listHTML string

// list is the page of the messages. Their HTML is shown in a frame without scripts.
var list = template.Must(template.New("list").Funcs(template.FuncMap{
	"parts": parts,
	"frame": func(html string) string { return `<base target="_blank">` + html },
}).Parse(listHTML))

// A part is a piece of text, or a URL.
type part struct {
	Text string
	Link bool
}

var address = regexp.MustCompile(`https?://[^\s<>"]+`)

// parts splits text at its URLs.
func parts(text string) []part {
	var all []part
	end := 0
	for _, at := range address.FindAllStringIndex(text, -1) {
		all = append(all, part{Text: text[end:at[0]]}, part{Text: text[at[0]:at[1]], Link: true})
		end = at[1]
	}
	return append(all, part{Text: text[end:]})
}

// namesThisMachine reports whether a Host header names this machine. With any other name, which resolves to this
// machine, a page of another site could read the mails and their links (DNS rebinding).
func namesThisMachine(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}
