package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// probeTimeout is above what /readyz itself waits for its stores.
const probeTimeout = 3 * time.Second

// AskReady asks the server that listens at an address of this machine, such as :8081, whether it is ready (/readyz). It
// is for health checks where there is no other program to ask with, as in a container image.
func AskReady(ctx context.Context, listen string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Dialling an address without a host, or 0.0.0.0, reaches this machine (package net); as part of a URL it would not
	// be valid.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", listen)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return errors.Join(errors.New("not ready: nobody answers at "+listen), err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // what there is of it
	return fmt.Errorf("not ready: %s: %s", response.Status, said)
}
