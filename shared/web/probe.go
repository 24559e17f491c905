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

// probeTimeout is longer than /readyz waits for its stores.
const probeTimeout = 3 * time.Second

// probeInterval is the pause between two calls of AskReady.
const probeInterval = 100 * time.Millisecond

// AwaitReady calls AskReady, at least once, until it returns nil. After wait, it returns the last error.
func AwaitReady(ctx context.Context, listen string, wait time.Duration) error {
	over := time.Now().Add(wait)
	for {
		err := AskReady(ctx, listen)
		if err == nil || !time.Now().Add(probeInterval).Before(over) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(probeInterval):
		}
	}
}

// AskReady returns nil if the server at an address of this machine, such as :8081, is ready (/readyz). It is
// for health checks without other programs, as in a container image.
func AskReady(ctx context.Context, listen string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Dialling an address without a host, or 0.0.0.0, reaches this machine (package net); such an address is
	// not valid in a URL.
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
		return errors.Join(errors.New("not ready: no response from "+listen), err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the error does not matter
	return fmt.Errorf("not ready: %s: %s", response.Status, body)
}
