package mail

import (
	"context"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Server is the mail server that messages are handed to.
type Server struct {
	host     string
	port     int
	user     string
	password credential.Secret
	implicit bool             // smtps://: TLS from the start
	upgrade  gomail.TLSPolicy // smtp://: TLSMandatory, or nothing is sent; smtp://…?tls=none: NoTLS
}

var errServerURL = errors.New(
	"must look like smtps://user:password@mail.example.org or smtp://user:password@mail.example.org:587")

// ParseServer parses ALMONER_SMTP_URL. smtps:// uses TLS from the start, on port 465, and smtp:// requires STARTTLS, on
// port 587 (RFC 8314); smtp://…?tls=none encrypts nothing, on port 25, and takes no password except on loopback. The
// error quotes nothing of the URL.
func ParseServer(text credential.Secret) (Server, error) {
	parsed, err := url.Parse(text.Reveal())
	if err != nil || parsed.Hostname() == "" || strings.Trim(parsed.Path, "/") != "" || parsed.Fragment != "" {
		return Server{}, errServerURL
	}
	s := Server{host: parsed.Hostname(), user: parsed.User.Username()}
	password, _ := parsed.User.Password()
	s.password = credential.Secret(password)
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil || (s.user == "") != (s.password == "") {
		return Server{}, errServerURL
	}
	switch {
	case parsed.Scheme == "smtps" && len(query) == 0:
		s.implicit, s.upgrade, s.port = true, gomail.TLSMandatory, 465
	case parsed.Scheme == "smtp" && len(query) == 0:
		s.upgrade, s.port = gomail.TLSMandatory, 587
	case parsed.Scheme == "smtp" && len(query) == 1 && query.Get("tls") == "none":
		s.upgrade, s.port = gomail.NoTLS, 25
	default:
		return Server{}, errServerURL
	}
	if parsed.Port() != "" {
		if s.port, err = strconv.Atoi(parsed.Port()); err != nil || s.port < 1 || s.port > 65535 {
			return Server{}, errServerURL
		}
	}
	if s.upgrade == gomail.NoTLS && s.password != "" && !loopback(s.host) {
		return Server{}, errors.New("must not have tls=none with a password, except for a server on this machine")
	}
	return s, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// ParseFrom parses ALMONER_MAIL_FROM.
func ParseFrom(text string) (netmail.Address, error) {
	parsed, err := netmail.ParseAddress(text)
	if err != nil || parsed.Name == "" || clean(parsed.Name) != parsed.Name {
		return netmail.Address{}, errors.New("must be an address with a name, like Almoner <almoner@example.org>")
	}
	return *parsed, nil
}

// An Envelope is a message for the mail server.
type Envelope struct {
	MessageID string // without angle brackets
	Address   string
	Name      string
	Subject   string
	Text      string
	HTML      string
}

// ErrRefused reports that the mail server refused the recipient permanently.
var ErrRefused = errors.New("the mail server refused the recipient")

// A Sender sends by SMTP. It is safe for concurrent use.
type Sender struct {
	server Server
	from   netmail.Address
	now    func() time.Time
}

// NewSender returns a Sender.
func NewSender(server Server, from netmail.Address, now func() time.Time) *Sender {
	return &Sender{server: server, from: from, now: now}
}

// smtpTimeout limits the connection, and each command after it.
const smtpTimeout = 10 * time.Second

// Send connects to the server and sends one message. It returns ErrRefused if the server refuses the recipient
// permanently.
func (s *Sender) Send(ctx context.Context, e Envelope) error {
	message, err := s.message(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	return withoutAddress(client.DialAndSendWithContext(ctx, message), spelling.OnWire(e.Address))
}

func (s *Sender) client() (*gomail.Client, error) {
	options := []gomail.Option{
		gomail.WithPort(s.server.port), gomail.WithTimeout(smtpTimeout), gomail.WithTLSPolicy(s.server.upgrade),
	}
	if s.server.implicit {
		options = append(options, gomail.WithSSL())
	}
	if s.server.password != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(s.server.user),
			gomail.WithPassword(s.server.password.Reveal()))
	}
	client, err := gomail.NewClient(s.server.host, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare to send mail: %w", err)
	}
	return client, nil
}

// message builds the message. Addresses and names that are not valid in a header are errors.
func (s *Sender) message(e Envelope) (*gomail.Msg, error) {
	message := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	if err := message.From(s.from.String()); err != nil {
		return nil, errors.New("the sender's address is not valid")
	}
	parsed, err := netmail.ParseAddress(e.Address)
	if err != nil || parsed.Address != e.Address {
		return nil, errors.New("the address is not valid")
	}
	recipient := netmail.Address{Name: e.Name, Address: spelling.OnWire(e.Address)}
	if err := message.To(recipient.String()); err != nil {
		return nil, errors.New("the address is not valid")
	}
	message.Subject(e.Subject)
	message.SetMessageIDWithValue(e.MessageID)
	message.SetDateWithValue(s.now())
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no automatic responses
	message.SetBodyString(gomail.TypeTextPlain, e.Text)
	message.AddAlternativeString(gomail.TypeTextHTML, e.HTML)
	return message, nil
}

// withoutAddress classifies an error, and removes the recipient's address from its text, because the text is logged.
func withoutAddress(err error, address string) error {
	if err == nil {
		return nil
	}
	cause := errors.New(strings.ReplaceAll(clean(err.Error()), address, "[address]"))
	if refused, ok := errors.AsType[*gomail.SendError](err); ok &&
		refused.Reason == gomail.ErrSMTPRcptTo && !refused.IsTemp() {
		return fmt.Errorf("%w: %w", ErrRefused, cause)
	}
	return fmt.Errorf("send mail: %w", cause)
}
