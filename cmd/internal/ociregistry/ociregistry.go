// SPDX-License-Identifier: Apache-2.0

// Package ociregistry opens repositories of a registry, with the credentials of docker
// login, to push images to.
package ociregistry

import (
	"errors"
	"fmt"
	"strings"

	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// Registry is where images are pushed.
type Registry struct {
	Name      string // HOST[:PORT]/NAME
	client    *auth.Client
	plainHTTP bool
}

// New does not connect yet. agent is the name of the program.
func New(name, agent string, plainHTTP bool) (*Registry, error) {
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("read docker's credentials: %w", err)
	}
	client := &auth.Client{Client: retry.DefaultClient, Cache: auth.NewCache(), Credential: credentials.Credential(store)}
	client.SetUserAgent(agent)
	return &Registry{Name: strings.TrimSuffix(name, "/"), client: client, plainHTTP: plainHTTP}, nil
}

// Repository is that of an image.
func (r *Registry) Repository(image string) (*remote.Repository, error) {
	repository, err := remote.NewRepository(r.Name + "/" + image)
	if err != nil {
		return nil, err
	}
	repository.Client, repository.PlainHTTP = r.client, r.plainHTTP
	return repository, nil
}

// Explain adds advice to the most common errors.
func Explain(err error) error {
	switch {
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w (the registry has no TLS: -plain-http, PLAIN_HTTP=1 for make)", err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return fmt.Errorf("%w (docker login)", err)
	}
	return err
}
