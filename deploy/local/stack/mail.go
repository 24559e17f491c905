package stack

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/spelling"
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
		box: box,
		server: &http.Server{
			Handler:           box,
			ReadHeaderTimeout: 5 * time.Second,
		},
		url: "http://" + listener.Addr().String() + "/",
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
