# The operator's image. The binary is built outside (`make image`) and lies in the context as ARCHITECTURE/valkey-operator,
# so that one file serves both architectures without a compiler or an emulator in it.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG TARGETARCH
COPY ${TARGETARCH}/valkey-operator /usr/local/bin/valkey-operator
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/valkey-operator"]
