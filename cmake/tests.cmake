# One GoogleTest binary per mirrored folder, and fuzz targets that replay their corpora. cmake/ctest.cmake says what RELEASE,
# BOTH, MINUTES and the like mean.
# What several test folders share: the tag model behind a real runner.
file(GLOB QUIRE_TEST_SUPPORT CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.cc)
add_library(quire_test_support STATIC ${QUIRE_TEST_SUPPORT})
quire_is_test(quire_test_support)
target_link_libraries(quire_test_support PUBLIC quire_worker_engine)

quire_test(common DEPS common)
quire_test(common/json DEPS common/json)
quire_test(common/serve DEPS common/serve)
quire_test(common/batch DEPS common/batch)
quire_test(common/client DEPS common/client)
quire_test(common/dialect BOTH COMPUTES MINUTES 0.3 ASAN_MINUTES 0.5 DEPS common/dialect common/text)
quire_test(common/log THREADS * DEPS common/log)
quire_test(common/metrics THREADS * DEPS common/metrics)
quire_test(common/config DEPS common/config)
quire_test(common/runtime THREADS * DEPS common/runtime)
quire_test(common/http2 THREADS * DEPS common/http2)
quire_test(common/tls THREADS * DEPS common/tls LIBS OpenSSL::SSL)
quire_test(common/text BOTH MINUTES 0.4 ASAN_MINUTES 0.5
  LEFT ChatTemplateTest.BombsEndInErrors *BeginningOfSequence* TokenizerTest.EqualsTheLibrarysOwnPipeline
       GemmaGgufTest* *RealTokenizer* DetokenizerTest.EverySplitOf*  # Rust: not instrumented
  DEPS common/text)
quire_test(common/grammar MINUTES 0.3 ASAN_MINUTES 0.5 SOURCES tests/common/text/text_fixtures.cc
  DEPS common/grammar common/dialect common/json)
quire_program(constraint_check tests/common/grammar/program/constraint_check.cc DEPS common/grammar common/json)
quire_test(common/trace THREADS * DEPS common/trace)
quire_test(common/wire THREADS * DEPS common/wire)
quire_test(kernels COMPUTES BOTH MINUTES 1.0 ASAN_MINUTES 2.5 THREADS ThreadPool* *Program* *Backend*
  LEFT Sampler.DrawsFollow* Scan.TheDrawIsThatOfAPlainLoop *AgreesWithFloat64AndInAnyPieces/1
       *AgreesWithFloat64AndInAnyPieces/2 *AgreesWithFloat64AndInAnyPieces/3 Program.BFloat16Activations
       Program.WindowsHeadNormsAndSoftCaps Program.Int8Activations Lora.AgreesWithFloat64OnEveryInstructionSet
  DEPS kernels/cpu kernels/sampling)
quire_test(kernels/encode DEPS kernels/encode)
quire_test(kernels/collectives COMPUTES THREADS * DEPS kernels/collectives)
quire_test(kernels/libraries RELEASE DEPS kernels/libraries)
if(QUIRE_EMULATED_CUDA)
  quire_test(kernels/cuda COMPUTES RELEASE NOT_QUICK MINUTES 1.5 DEPS kernels kernels/cpu kernels/cuda/cublaslt kernels/cuda/emulate kernels/sampling
             LIBS quire_cuda_ops quire_cuda_planted)
  # Libraries that stand in for NCCL: one as it should be, an old one, and one without ncclCommAbort.
  set(QUIRE_FAKE_NCCL ${CMAKE_BINARY_DIR}/tests/fake_nccl)
  function(quire_fake_nccl kind)
    add_library(fake_nccl_${kind} SHARED ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/nccl/fake_nccl.cc)
    target_include_directories(fake_nccl_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(fake_nccl_${kind} PRIVATE ${ARGN})
    set_target_properties(fake_nccl_${kind} PROPERTIES PREFIX "" OUTPUT_NAME libnccl SUFFIX .so.2
      LIBRARY_OUTPUT_DIRECTORY ${QUIRE_FAKE_NCCL}/${kind})
    add_dependencies(test_kernels_cuda_nccl fake_nccl_${kind})
  endfunction()
  quire_test(kernels/cuda/nccl COMPUTES RELEASE NOT_QUICK DEPS kernels/cuda/nccl kernels/cuda/emulate kernels/collectives LIBS quire_cuda_ops)
  target_sources(test_kernels_cuda_nccl PRIVATE ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/device_bed.cc)
  target_compile_definitions(test_kernels_cuda_nccl PRIVATE QUIRE_FAKE_NCCL_FOLDER="${QUIRE_FAKE_NCCL}")
  quire_fake_nccl(good)
  quire_fake_nccl(old FAKE_NCCL_VERSION=21803)
  quire_fake_nccl(lacking FAKE_NCCL_WITHOUT_ABORT)
  # And for cuBLASLt: one as it should be, one of another version, and one without cublasLtMatmul.
  set(QUIRE_FAKE_CUBLASLT ${CMAKE_BINARY_DIR}/tests/fake_cublaslt)
  function(quire_fake_cublaslt kind)
    add_library(fake_cublaslt_${kind} SHARED ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/cublaslt/fake_cublaslt.cc)
    target_include_directories(fake_cublaslt_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(fake_cublaslt_${kind} PRIVATE ${ARGN})
    target_compile_options(fake_cublaslt_${kind} PRIVATE -O3)  # it is to be faster than emulated kernels
    set_target_properties(fake_cublaslt_${kind} PROPERTIES PREFIX "" OUTPUT_NAME libcublasLt SUFFIX .so.13
      LIBRARY_OUTPUT_DIRECTORY ${QUIRE_FAKE_CUBLASLT}/${kind})
    add_dependencies(test_kernels_cuda_cublaslt fake_cublaslt_${kind})
  endfunction()
  quire_test(kernels/cuda/cublaslt COMPUTES RELEASE NOT_QUICK DEPS kernels/cuda/cublaslt kernels/cuda/emulate LIBS quire_cuda_ops)
  target_sources(test_kernels_cuda_cublaslt PRIVATE ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/device_bed.cc)
  target_compile_definitions(test_kernels_cuda_cublaslt PRIVATE QUIRE_FAKE_CUBLASLT_FOLDER="${QUIRE_FAKE_CUBLASLT}")
  quire_fake_cublaslt(good)
  quire_fake_cublaslt(old FAKE_CUBLASLT_VERSION=120901)
  quire_fake_cublaslt(lacking FAKE_CUBLASLT_WITHOUT_MATMUL)
  quire_test(kernels/cuda/backend COMPUTES RELEASE NOT_QUICK MINUTES 3.0 SHARDS 2 DEPS kernels/cuda/backend kernels/cpu kernels/collectives worker/adapters worker/engine worker/model
             common/json LIBS quire_cuda_ops_plain quire_cuda_timing quire_test_support)
  target_sources(test_kernels_cuda_backend PRIVATE ${CMAKE_SOURCE_DIR}/tests/golden/driver.cc
                 ${CMAKE_SOURCE_DIR}/tests/golden/golden_file.cc
                 ${CMAKE_SOURCE_DIR}/tests/golden/one_answer_test.cc
                 ${CMAKE_SOURCE_DIR}/tests/golden/rank_driver.cc
                 ${CMAKE_SOURCE_DIR}/tests/kernels/grid_elements.cc ${CMAKE_SOURCE_DIR}/tests/kernels/test_weights.cc)
  target_compile_definitions(test_kernels_cuda_backend PRIVATE QUIRE_FAKE_NCCL_FOLDER="${QUIRE_FAKE_NCCL}"
                             QUIRE_FAKE_CUBLASLT_FOLDER="${QUIRE_FAKE_CUBLASLT}")
  add_dependencies(test_kernels_cuda_backend fake_nccl_good fake_cublaslt_good)
  # Whole steps with every check of the emulated grid.
  quire_test(kernels/cuda/chain COMPUTES RELEASE NOT_QUICK DEPS kernels/cuda/backend kernels/cpu kernels/collectives worker/model common/json
             LIBS quire_cuda_ops quire_cuda_planted quire_test_support)
  target_sources(test_kernels_cuda_chain PRIVATE ${CMAKE_SOURCE_DIR}/tests/golden/driver.cc
                 ${CMAKE_SOURCE_DIR}/tests/golden/golden_file.cc
                 ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/backend/step_bed.cc)
  if(TARGET test_kernels_cuda)
    target_sources(test_kernels_cuda PRIVATE ${CMAKE_SOURCE_DIR}/tests/kernels/grid_elements.cc
                   ${CMAKE_SOURCE_DIR}/tests/kernels/test_weights.cc)
    target_compile_definitions(test_kernels_cuda PRIVATE QUIRE_FAKE_CUBLASLT_FOLDER="${QUIRE_FAKE_CUBLASLT}")
    add_dependencies(test_kernels_cuda fake_cublaslt_good)
  endif()
endif()
quire_test(worker/load DEPS worker/load)
quire_test(worker/load/text DEPS worker/load/text)
quire_test(worker/adapters ASAN_MINUTES 0.5 DEPS worker/adapters common/json)
quire_test(worker/model DEPS worker/model)
quire_test(worker/sample DEPS worker/sample)
quire_test(worker/draft DEPS worker/draft)
quire_test(worker/runner DEPS worker/runner LIBS quire_test_support)
quire_test(worker/ranks ASAN_MINUTES 0.4 THREADS * DEPS worker/ranks LIBS quire_test_support)
quire_test(worker/constrain THREADS MaskPool* DEPS worker/constrain LIBS quire_test_support)
quire_test(worker/kv DEPS worker/kv)
quire_test(worker/scheduler BOTH LEFT FairnessTest.NoTenantWithWorkFallsBelowItsShare
  DEPS worker/scheduler LIBS quire_test_support)
quire_test(worker/engine BOTH MINUTES 1.0 ASAN_MINUTES 1.5 THREADS EngineThread* *Driver*
  LEFT *IdentityTest.RandomNeighboursChangeNothing* *IdentityTest.ResumeAtEveryIndex* *OneAnswerTest*
       *ChoicesIdentity.NeighboursAndSiblings* EnginePrefixCacheTest.AMillionBlocks*
       EnginePrefixCacheTest.SnapshotsUnderLoadEndExact EnginePrefixCacheTest.ASnapshotWaitsForItsReader
       BeamSearchEngine.NothingAroundItChangesIt
  DEPS worker/engine worker/model LIBS quire_test_support)
# The same tests with the tag model on the emulated CUDA worker's step path: its pages, block tables, last samples,
# graphs and two steps in flight. What is defined in these objects takes the place of a library's.
if(QUIRE_EMULATED_CUDA)
  set(QUIRE_TAG_KERNELS ${CMAKE_SOURCE_DIR}/tests/support/tag_cuda/tag_kernels.cu)
  set_source_files_properties(${QUIRE_TAG_KERNELS} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-x;c++;-O2;-Wno-unknown-pragmas;-mavx2;-mfma")
  add_library(quire_tag_on_cuda OBJECT ${QUIRE_TAG_KERNELS}
              ${CMAKE_SOURCE_DIR}/tests/support/tag_cuda/tag_cuda_program.cc)
  quire_is_test(quire_tag_on_cuda)
  quire_use_pch(quire_tag_on_cuda quire_pch)
  target_link_libraries(quire_tag_on_cuda PUBLIC quire_test_support quire_kernels_cuda_backend quire_cuda_ops_plain)
  function(quire_tag_on_cuda name)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:quire_tag_on_cuda>)
    target_link_libraries(${name} PRIVATE quire_kernels_cuda_backend quire_cuda_ops_plain)
  endfunction()
  # All of tests/worker/engine but snapshot_test.cc, whose prompts of 20,000 tokens are there to fill the index of the cache
  # on the host, and real_model_test.cc, whose kernels are the CPU's: tests/kernels/cuda/backend has its like.
  set(QUIRE_TAG_ENGINE beam_engine_test.cc choices_test.cc constraint_test.cc device_test.cc driver_test.cc engine_test.cc forced_tokens_test.cc identity_test.cc
      one_answer_test.cc prefix_cache_test.cc prompt_logprobs_test.cc record_test.cc speculation_test.cc step_time_test.cc
      submit_limits_test.cc submit_test.cc)
  list(TRANSFORM QUIRE_TAG_ENGINE PREPEND ${CMAKE_SOURCE_DIR}/tests/worker/engine/)
  quire_test(worker/engine_cuda RELEASE NOT_QUICK MINUTES 0.5
             LATER StepsInFlight/*/0 EnginePrefixCacheTest.SnapshotsUnderLoadEndExact
             DEPS worker/engine LIBS quire_test_support SOURCES ${QUIRE_TAG_ENGINE})
  quire_tag_on_cuda(test_worker_engine_cuda)
  target_compile_definitions(test_worker_engine_cuda PRIVATE QUIRE_ENGINE_SEEDS=1)
  set(QUIRE_TAG_RANKS main.cc rank_group_test.cc)
  list(TRANSFORM QUIRE_TAG_RANKS PREPEND ${CMAKE_SOURCE_DIR}/tests/worker/ranks/)
  quire_test(worker/ranks_cuda RELEASE NOT_QUICK MINUTES 0.3
             LATER RankGroup.EveryFaultTakesTheGroupDownAndItComesBack RankGroup.ARankThatIsStopped*
             DEPS worker/ranks LIBS quire_test_support SOURCES ${QUIRE_TAG_RANKS})
  quire_tag_on_cuda(test_worker_ranks_cuda)
  target_compile_definitions(test_worker_ranks_cuda PRIVATE QUIRE_RANK_PATIENCE=4)
endif()
# The lives of a worker, and the planted bugs that they must find: the listed sources are compiled once
# more with QUIRE_PLANTED_BUGS and take the place of their library's. A bug in a file that is not listed is
# never found, and the test says so.
file(GLOB QUIRE_ENGINE_SIM CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/engine_sim/*.cc)
add_library(quire_engine_sim STATIC ${QUIRE_ENGINE_SIM})
quire_is_test(quire_engine_sim)
quire_join_sources(quire_engine_sim)
quire_use_pch(quire_engine_sim quire_pch)
target_link_libraries(quire_engine_sim PUBLIC quire_test_support quire_worker_rpc quire_router_link)
quire_test(worker/sim COMPUTES RELEASE MINUTES 1.0 DEPS worker/rpc LIBS quire_engine_sim)
if(QUIRE_EMULATED_CUDA)
  quire_test(worker/sim_cuda COMPUTES RELEASE NOT_QUICK MINUTES 0.6 DEPS worker/rpc LIBS quire_engine_sim
             SOURCES ${CMAKE_SOURCE_DIR}/tests/worker/sim/engine_sim_test.cc)
  quire_tag_on_cuda(test_worker_sim_cuda)
  target_compile_definitions(test_worker_sim_cuda PRIVATE QUIRE_SIM_LIVES=40)
endif()
set(QUIRE_PLANTED
    worker/engine/engine.cc worker/engine/engine_commands.cc worker/engine/engine_device.cc
    worker/engine/engine_drafts.cc worker/engine/output_builder.cc worker/constrain/mask_pool.cc
    worker/engine/request_table.cc worker/scheduler/scheduler.cc worker/scheduler/scheduler_forks.cc
    worker/scheduler/scheduler_drafts.cc worker/scheduler/scheduler_room.cc worker/scheduler/scheduler_rows.cc worker/kv/kv_cache.cc
    worker/kv/kv_cache_prefix.cc worker/kv/prefix_index.cc worker/runner/row_table.cc
    worker/sample/row_sampler.cc worker/sample/stop_rules.cc worker/rpc/attach_hub.cc
    worker/rpc/attach_session.cc worker/draft/model_drafter.cc)
quire_test(worker/planted COMPUTES RELEASE NOT_QUICK MINUTES 0.5 DEPS worker/rpc LIBS quire_engine_sim)
list(TRANSFORM QUIRE_PLANTED PREPEND ${CMAKE_SOURCE_DIR}/)
set_source_files_properties(${QUIRE_PLANTED} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(test_worker_planted PRIVATE ${QUIRE_PLANTED})
target_compile_definitions(test_worker_planted PRIVATE QUIRE_PLANTED_BUGS)
if(TARGET quire-worker)
  add_dependencies(test_worker_planted quire-worker)  # is held to have none of it
endif()
quire_test(worker/steady COMPUTES RELEASE DEPS worker/engine worker/model kernels/collectives LIBS quire_test_support)
quire_test(worker/records DEPS worker/records)
quire_test(worker/rpc ASAN_MINUTES 0.5
  THREADS * -ServerTlsTest*  # OpenSSL under gRPC's library is not instrumented
  DEPS worker/rpc LIBS quire_test_support)
quire_test(worker/device RELEASE DEPS worker/device)
# Libraries that stand in for the driver and for the plugin, each with something else wrong.
function(quire_fake folder name source)
  add_library(fake_${folder}_${name} SHARED ${CMAKE_SOURCE_DIR}/tests/worker/device/fakes/${source}.cc)
  target_include_directories(fake_${folder}_${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated/build_id)
  target_compile_definitions(fake_${folder}_${name} PRIVATE ${ARGN})
  set_target_properties(fake_${folder}_${name} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fake_cuda/${folder})
  add_dependencies(fake_${folder}_${name} quire_build_id)
  add_dependencies(test_worker_device fake_${folder}_${name})
  add_dependencies(quire_programs fake_${folder}_${name})
endfunction()
if(TARGET test_worker_device AND TARGET quire-worker)
  add_dependencies(test_worker_device quire-worker)  # its tests start the program
  if(TARGET fake_nccl_good)
    add_dependencies(test_worker_device fake_nccl_good fake_cublaslt_good)  # and name these
  endif()
  quire_fake(driver libcuda.so.1 fake_cuda)
  quire_fake(lacking libcuda.so.1 fake_cuda FAKE_CUDA_WITHOUT_MEMORY)
  quire_fake(nvml libnvidia-ml.so.1 fake_nvml)
  quire_fake(nvml_little libnvidia-ml.so.1 fake_nvml FAKE_NVML_WITH_LITTLE)
  quire_fake(good libquire_cuda.so fake_plugin)
  quire_fake(another_build libquire_cuda.so fake_plugin FAKE_PLUGIN_BUILD_ID="0123456789abcdef")
  quire_fake(another_version libquire_cuda.so fake_plugin FAKE_PLUGIN_VERSION=99)
  quire_fake(no_table libquire_cuda.so fake_plugin FAKE_PLUGIN_WITHOUT_TABLE)
endif()
# The worker on an emulated CUDA device, which takes the place of worker/device/linked_device.cc.
if(QUIRE_EMULATED_CUDA)
  add_executable(quire-worker-emulated ${CMAKE_SOURCE_DIR}/worker/main.cc
                 ${CMAKE_SOURCE_DIR}/tests/support/emulated_cuda/linked_device.cc)
  target_link_libraries(quire-worker-emulated PRIVATE quire_worker quire_kernels_cuda_backend quire_cuda_ops_plain)
  set_target_properties(quire-worker-emulated PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(quire-worker-emulated fake_nccl_good fake_cublaslt_good)  # its tests name them
  add_dependencies(quire_programs quire-worker-emulated)
endif()
# The worker whose steps hang, or take long, when a signal says so: the one file that opens the CPU's backend is
# compiled once more and opens the tests' own, which hands on to it.
if(TARGET quire-worker)
  add_library(quire_hanging_programs OBJECT ${CMAKE_SOURCE_DIR}/worker/rank_programs.cc)
  target_link_libraries(quire_hanging_programs PUBLIC quire_worker)
  target_compile_definitions(quire_hanging_programs PRIVATE MakeCpuBackend=MakeHangingBackend)
  add_executable(quire-worker-hanging ${CMAKE_SOURCE_DIR}/worker/main.cc
                 ${CMAKE_SOURCE_DIR}/tests/support/hanging_worker/hanging_backend.cc
                 $<TARGET_OBJECTS:quire_hanging_programs>)
  target_link_libraries(quire-worker-hanging PRIVATE quire_worker)
  set_target_properties(quire-worker-hanging PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(quire_programs quire-worker-hanging)
endif()
quire_test(worker/config RELEASE DEPS worker common/json)
if(TARGET test_worker_config)
  add_dependencies(test_worker_config quire-worker)  # its tests start the program
endif()
quire_test(worker/heads BOTH DEPS worker common/json)
quire_test(router/core DEPS router/core)
quire_test(router/fleet DEPS router/fleet)
quire_test(router/discovery THREADS * DEPS router/discovery)
quire_test(router/routing DEPS router/routing)
quire_test(router/link ASAN_MINUTES 0.5
  THREADS DialerTest* DialerExitTest* LinkTest* GatedLinkTest* WorkerCallTest* ConnectTimeout*
  DEPS router/link router/fleet)  # not DialerTlsTest: OpenSSL under gRPC's library is not instrumented
quire_test(router/dispatch DEPS router/dispatch bench/fleet)
quire_test(router/stream DEPS router/stream)
quire_test(router/admission DEPS router/admission)
quire_test(router/loading DEPS router/loading)
quire_test(router/records DEPS router/records)
quire_test(router/chat DEPS router/chat SOURCES tests/common/text/text_fixtures.cc)
quire_test(router/pipeline DEPS router/pipeline)
quire_test(router/keys DEPS router/keys)
quire_test(router/admin DEPS router/admin)
quire_test(router/oip DEPS router/grpc/oip)
quire_test(router/responses DEPS router/responses)
quire_test(router/batches DEPS router/batches)
quire_test(router/messages DEPS router/messages)
quire_test(router/ollama DEPS router/ollama)
quire_test(router/http ASAN_MINUTES 0.5 THREADS * DEPS router/http)
quire_test(router/grpc ASAN_MINUTES 0.5 THREADS * DEPS router/grpc/oip)
quire_test(router/front BOTH NOT_QUICK MINUTES 1.0 ASAN_MINUTES 1.0
  THREADS * -TlsEdge.GrpcGoesThroughTheGuardToo  # OpenSSL under gRPC's library is not instrumented
  DEPS router/front router/grpc/oip)
quire_test(router/config DEPS router)
quire_test(library DEPS library)
quire_test(cli/pull THREADS * DEPS cli/pull)
quire_test(cli RELEASE DEPS cli)
if(TARGET test_cli AND TARGET fake_nvml_libnvidia-ml.so.1)
  add_dependencies(test_cli fake_nvml_libnvidia-ml.so.1)
endif()
quire_test(bench/mock RELEASE DEPS bench/mock)
quire_test(golden COMPUTES RELEASE MINUTES 2.5 SHARDS 2 DEPS worker/adapters worker/engine worker/model kernels/collectives common/json)
# The lives of a fleet of routers and workers.
file(GLOB QUIRE_FLEET_SIM CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/fleet_sim/*.cc)
add_library(quire_fleet_sim STATIC ${QUIRE_FLEET_SIM})
quire_is_test(quire_fleet_sim)
quire_use_pch(quire_fleet_sim quire_pch)
target_link_libraries(quire_fleet_sim PUBLIC quire_test_support quire_worker_rpc quire_router_pipeline)
quire_test(sim COMPUTES BOTH NOT_QUICK MINUTES 2.2 ASAN_MINUTES 1.4 SHARDS 2 ASAN_ENV QUIRE_SIM_SEEDS=12
  DEPS router/pipeline worker/rpc LIBS quire_fleet_sim)
set(QUIRE_ROUTER_PLANTED
    router/admission/admission.cc router/dispatch/dispatcher.cc router/dispatch/dispatcher_failover.cc router/dispatch/dispatcher_frames.cc
    router/dispatch/live_dispatch.cc router/dispatch/placement.cc router/fleet/cache_index.cc
    router/fleet/fleet.cc router/fleet/worker_health.cc router/link/link.cc router/pipeline/model_directory.cc
    router/pipeline/request.cc router/stream/choice_stream.cc)
quire_test(router/planted COMPUTES RELEASE NOT_QUICK MINUTES 1.0 DEPS router/pipeline worker/rpc LIBS quire_fleet_sim)
list(TRANSFORM QUIRE_ROUTER_PLANTED PREPEND ${CMAKE_SOURCE_DIR}/)
set_source_files_properties(${QUIRE_ROUTER_PLANTED} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(test_router_planted PRIVATE ${QUIRE_ROUTER_PLANTED})
target_compile_definitions(test_router_planted PRIVATE QUIRE_PLANTED_BUGS)
if(TARGET quire-router)
  add_dependencies(test_router_planted quire-router)  # is held to have none of it
endif()

quire_fuzz(json DEPS common/json)
quire_fuzz(multipart DEPS router/batches)
quire_fuzz(dialect DEPS common/dialect)
quire_fuzz(tokenizer DEPS common/text)
quire_fuzz(chat_template DEPS common/text)
quire_fuzz(constraint DEPS common/grammar)
quire_fuzz(safetensors DEPS worker/load)
quire_fuzz(gguf DEPS worker/model)
quire_fuzz(model_config DEPS worker/model)
quire_fuzz(adapter_config DEPS worker/adapters)
quire_fuzz(desired_adapters DEPS worker/adapters)
quire_fuzz(quantisation DEPS worker/load)
quire_fuzz(worker_frame DEPS router/dispatch)
quire_fuzz(router_frame DEPS worker/rpc)
quire_fuzz(http_request DEPS router/http)
quire_fuzz(open_inference DEPS router/grpc/oip)
quire_fuzz(agent_request DEPS router/responses router/messages router/ollama)
quire_fuzz(grpc_connection DEPS router/grpc/oip)
quire_fuzz(http2_guard DEPS router/grpc)
quire_fuzz(http2_session DEPS common/http2)
quire_fuzz(step_packet DEPS worker/runner)
quire_fuzz(rank_messages DEPS worker/ranks)
quire_fuzz(endpoint_slices DEPS router/discovery)
quire_fuzz(key_file DEPS router/keys)
quire_fuzz(client_address DEPS router/front)
quire_fuzz(metrics_text DEPS common/metrics)
quire_fuzz(certificate DEPS worker/rpc)
