package stack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

// A post is the mailbox of the deployment and the page that shows it.
type post struct {
	box    *mailbox.Mailbox
	server *http.Server
	url    string
}

// openMailbox starts a mailbox that gets all mail of the deployment, and its page on a loopback port.
func openMailbox(port int) (*post, error) {
	box, err := mailbox.Start()
	if err != nil {
		return nil, fmt.Errorf("start the mailbox: %w", err)
	}
	box.Spell(spelling.Key)
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		box.Close()
		return nil, fmt.Errorf("start the mailbox: %w", err)
	}
	p := &post{
		box:    box,
		server: &http.Server{Handler: box, ReadHeaderTimeout: 5 * time.Second},
		url:    "http://" + listener.Addr().String() + "/",
	}
	go func() { _ = p.server.Serve(listener) }() // ends with close
	return p, nil
}

// mailSettings are authserver's settings of the mailbox, or none.
func (s *Stack) mailSettings() map[string]string {
	if s.post == nil {
		return nil
	}
	return map[string]string{
		"ALMONER_SMTP_URL":  s.post.box.URL(),
		"ALMONER_MAIL_FROM": "Almoner <almoner@example.org>",
	}
}

// Mailbox returns the mailbox of the deployment, or nil unless Options.Mailbox.
func (s *Stack) Mailbox() *mailbox.Mailbox {
	if s.post == nil {
		return nil
	}
	return s.post.box
}

func (p *post) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.server.Shutdown(ctx) // the process ends anyway
	p.box.Close()
}

// receiverYears is how long the certificate of webhook receivers is valid.
const receiverYears = 10

// receiverSettings are the services' settings for webhook receivers on this machine, or none.
func (s *Stack) receiverSettings() (map[string]string, error) {
	if !s.options.LocalReceivers {
		return map[string]string{}, nil
	}
	path := s.home.path("localhost.crt")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		content, err = makeCertificate(path, s.home.path("localhost.key"), time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate of webhook receivers: %w", err)
	}
	return map[string]string{"ALMONER_WEBHOOK_CA": string(content)}, nil
}

// makeCertificate writes a certificate for localhost and its key in PEM. It returns the certificate.
func makeCertificate(path, keyPath string, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "Almoner: webhook receivers on this machine"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(receiverYears, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pair := []struct {
		path string
		pem  []byte
	}{
		{keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})},
		{path, content}, // last: if it exists, so does the key
	}
	for _, file := range pair {
		if err := os.WriteFile(file.path, file.pem, 0o600); err != nil {
			return nil, err
		}
	}
	return content, nil
}
